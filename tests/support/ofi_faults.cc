#include "support/ofi_faults.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "na/ofi/fabric.h"

namespace weft::test {

std::atomic<int> ofi_refusals{0};
std::atomic<int> ofi_taken_before{0};
std::atomic<int> ofi_error{0};
std::atomic<int> ofi_register_error{0};
std::atomic<int> ofi_release_error{0};

namespace {

// One of each is enough: an executable uses one provider of libfabric.
fi_ops_fabric fabric_theirs, fabric_ours;
fi_ops_domain domain_theirs, domain_ours;
fi_ops_msg messages_theirs, messages_ours;
fi_ops_cq completions_theirs, completions_ours;
fi_ops_mr memory_theirs, memory_ours;
fi_ops registration_theirs, registration_ours;
bool holds_completions = false;
std::map<fid_cq*, std::vector<fi_cq_msg_entry>> held;

// All objects of a kind share a table, and contexts of other threads read it.
template <class Ops, class Change>
Ops* stand_before(const Ops& real, Ops& theirs, Ops& ours, Change&& change) {
    static std::once_flag once;  // One of each kind of table: its Change is a type of its own.
    std::call_once(once, [&] {
        theirs = ours = real;
        change(ours);
    });
    return &ours;
}

bool take_one(std::atomic<int>& from) {
    int left = from.load();
    while (left > 0) {
        if (from.compare_exchange_weak(left, left - 1)) return true;
    }
    return false;
}

bool refuses() { return ofi_refusals > 0 && !take_one(ofi_taken_before) && take_one(ofi_refusals); }

ssize_t send(fid_ep* ep, const void* bytes, size_t size, void* memory, fi_addr_t to,
             void* context) {
    return refuses() ? -ofi_error : messages_theirs.send(ep, bytes, size, memory, to, context);
}

ssize_t sendv(fid_ep* ep, const iovec* parts, void** memory, size_t count, fi_addr_t to,
              void* context) {
    return refuses() ? -ofi_error : messages_theirs.sendv(ep, parts, memory, count, to, context);
}

ssize_t inject(fid_ep* ep, const void* bytes, size_t size, fi_addr_t to) {
    return refuses() ? -ofi_error : messages_theirs.inject(ep, bytes, size, to);
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) {
    const int error = domain_theirs.endpoint(domain, info, ep, context);
    if (error) return error;
    (*ep)->msg = stand_before(*(*ep)->msg, messages_theirs, messages_ours, [](fi_ops_msg& ours) {
        ours.send = send;
        ours.sendv = sendv;
        ours.inject = inject;
    });
    return 0;
}

ssize_t read_completions(fid_cq* cq, void* buffer, size_t count) {
    if (!holds_completions && held.empty()) return completions_theirs.read(cq, buffer, count);
    std::vector<fi_cq_msg_entry>& kept = held[cq];
    if (holds_completions) {
        fi_cq_msg_entry entry;
        while (completions_theirs.read(cq, &entry, 1) == 1) kept.push_back(entry);
        return -FI_EAGAIN;
    }
    count = std::min(count, kept.size());
    std::copy_n(kept.begin(), count, static_cast<fi_cq_msg_entry*>(buffer));
    kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count));
    if (kept.empty()) held.erase(cq);
    return count ? static_cast<ssize_t>(count) : -FI_EAGAIN;
}

int open_completions(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) {
    const int error = domain_theirs.cq_open(domain, attr, cq, context);
    if (error) return error;
    (*cq)->ops = stand_before(*(*cq)->ops, completions_theirs, completions_ours,
                              [](fi_ops_cq& ours) { ours.read = read_completions; });
    return 0;
}

int release_memory(fid* registration) {
    return ofi_release_error ? -ofi_release_error : registration_theirs.close(registration);
}

int register_memory(fid* domain, const void* bytes, size_t size, uint64_t access, uint64_t offset,
                    uint64_t key, uint64_t flags, fid_mr** memory, void* context) {
    if (ofi_register_error) return -ofi_register_error;
    const int error =
        memory_theirs.reg(domain, bytes, size, access, offset, key, flags, memory, context);
    if (error) return error;
    (*memory)->fid.ops = stand_before(*(*memory)->fid.ops, registration_theirs, registration_ours,
                                      [](fi_ops& ours) { ours.close = release_memory; });
    return 0;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
    const int error = fabric_theirs.domain(fabric, info, domain, context);
    if (error) return error;
    (*domain)->ops =
        stand_before(*(*domain)->ops, domain_theirs, domain_ours, [](fi_ops_domain& ours) {
            ours.endpoint = open_endpoint;
            ours.cq_open = open_completions;
        });
    (*domain)->mr = stand_before(*(*domain)->mr, memory_theirs, memory_ours,
                                 [](fi_ops_mr& ours) { ours.reg = register_memory; });
    return 0;
}

decltype(&fi_fabric) fabric_library = nullptr;

int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
    const int error = fabric_library(attr, fabric, context);
    // Objects that a provider opens internally are not changed.
    if (error || std::string_view(attr->prov_name) != "tcp;ofi_rxm") return error;
    (*fabric)->ops = stand_before(*(*fabric)->ops, fabric_theirs, fabric_ours,
                                  [](fi_ops_fabric& ours) { ours.domain = open_domain; });
    return 0;
}

[[maybe_unused]] const bool stands_between = [] {
    na::ofi::when_loaded = [](na::ofi::Library& library) {
        fabric_library = std::exchange(library.fabric, open_fabric);
    };
    return true;
}();

}  // namespace

OfiHoldsCompletions::OfiHoldsCompletions() { holds_completions = true; }
OfiHoldsCompletions::~OfiHoldsCompletions() { holds_completions = false; }

std::size_t OfiHoldsCompletions::count() const {
    std::size_t all = 0;
    for (const auto& [cq, kept] : held) all += kept.size();
    return all;
}

}  // namespace weft::test
