#include "rpc/method_table.h"

#include <bit>

#include <weft/method.h>

#include "base/assert.h"

namespace weft::rpc {

Status MethodTable::add(std::string_view full_name, RawHandler handler, MethodTraits traits,
                        bool drain_exempt) {
    const std::uint64_t hash = method_hash(full_name);
    if (const Method* there = find(hash)) {
        return fail(Code::already_exists, there->name == full_name
                                              ? "method " + there->name + " is served already"
                                              : "methods " + there->name + " and " +
                                                    std::string(full_name) +
                                                    " have the same hash; rename one");
    }
    if (!handler) {
        return fail(Code::invalid_argument,
                    "method " + std::string(full_name) +
                        " has an empty function for its handler; pass one that answers the call");
    }
    auto method = std::make_unique<Method>();
    method->hash = hash;
    method->name = full_name;
    method->handler = std::move(handler);
    method->traits = traits;
    method->drain_exempt = drain_exempt;
    methods_.push_back(std::move(method));
    rebuild(true);
    return {};
}

void MethodTable::shrink(std::size_t to) {
    if (to == methods_.size()) return;
    WEFT_ASSERT(to < methods_.size() && last_run() != methods_.back().get());
    methods_.resize(to);
    rebuild(true);
}

void MethodTable::close() { rebuild(false); }

void MethodTable::close_all() {
    for (const auto& method : methods_) method->drain_exempt = false;
    rebuild(false);
}

void MethodTable::drop_handlers() {
    for (const auto& method : methods_) method->handler.reset();
}

void MethodTable::rebuild(bool is_open) {
    slots_.assign(std::bit_ceil(methods_.size() * 4 + 2), nullptr);
    mask_ = slots_.size() - 1;
    for (const auto& method : methods_) {
        if (!is_open && !method->drain_exempt) continue;
        std::size_t i = method->hash & mask_;
        while (slots_[i]) i = (i + 1) & mask_;
        slots_[i] = method.get();
    }
}

}  // namespace weft::rpc
