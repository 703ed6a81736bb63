#include "rpc/method_table.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <weft/method.h>

#include "base/assert.h"

namespace weft::rpc {

Method::Method(std::string_view full_name, RawHandler with, MethodTraits and_traits)
    : hash(method_hash(full_name)), name(full_name), handler(std::move(with)), traits(and_traits) {}

static std::size_t slots_for(std::size_t methods) { return std::bit_ceil(methods * 4 + 2); }

Status MethodTable::why_not_added(const Method& method, Methods beside) const {
    const auto is_same = [&](const auto& there) { return there->hash == method.hash; };
    for (const Methods all : {Methods(methods_), beside}) {
        const auto found = std::ranges::find_if(all, is_same);
        if (found == all.end()) continue;
        const std::string& name = (*found)->name;
        return fail(Code::already_exists, name == method.name
                                              ? "method " + name + " is served already"
                                              : "methods " + name + " and " + method.name +
                                                    " have the same hash; rename one");
    }
    if (method.handler) return {};
    return fail(Code::invalid_argument,
                "method " + method.name +
                    " has an empty function for its handler; pass one that answers the call");
}

Status MethodTable::add(std::string_view full_name, RawHandler handler, MethodTraits traits,
                        bool drain_exempt) {
    auto method = std::make_unique<Method>(full_name, std::move(handler), traits);
    method->drain_exempt = drain_exempt;
    if (Status why = why_not_added(*method, staged_); !why.ok()) return why;
    reserve(1);
    methods_.push_back(std::move(method));
    rebuild();
    return {};
}

Status MethodTable::stage(std::vector<std::unique_ptr<Method>> methods) {
    WEFT_ASSERT(staged_.empty());
    for (std::size_t i = 0; i < methods.size(); ++i) {
        Status why = why_not_added(*methods[i], Methods(methods).first(i));
        if (!why.ok()) return why;
    }
    reserve(methods.size());
    staged_ = std::move(methods);
    return {};
}

void MethodTable::publish() noexcept {
    WEFT_ASSERT(methods_.capacity() - methods_.size() >= staged_.size());
    for (auto& method : staged_) methods_.push_back(std::move(method));
    staged_.clear();
    rebuild();
}

// Their handlers are the program's, and are destroyed last.
void MethodTable::drop_staged() { const auto last = std::exchange(staged_, {}); }

// Room for the staged methods and so many more.
void MethodTable::reserve(std::size_t more) {
    const std::size_t all = methods_.size() + staged_.size() + more;
    methods_.reserve(all);
    slots_.reserve(slots_for(all));
}

void MethodTable::close() {
    is_open_ = false;
    rebuild();
}

void MethodTable::close_all() {
    for (const auto& method : methods_) method->drain_exempt = false;
    close();
}

void MethodTable::drop_handlers() {
    for (const auto& method : methods_) method->handler.reset();
}

void MethodTable::rebuild() {
    slots_.assign(slots_for(methods_.size()), nullptr);
    mask_ = slots_.size() - 1;
    for (const auto& method : methods_) {
        if (!is_open_ && !method->drain_exempt) continue;
        std::size_t i = method->hash & mask_;
        while (slots_[i]) i = (i + 1) & mask_;
        slots_[i] = method.get();
    }
}

}  // namespace weft::rpc
