#include "support/ofi_faults.h"

#include <dlfcn.h>

#include <string_view>

#include "na/ofi/fabric.h"

namespace weft::test {

std::atomic<int> ofi_refusals{0};
std::atomic<int> ofi_taken_before{0};
std::atomic<int> ofi_error{0};

namespace {

// One of each is enough: an executable uses one provider of libfabric.
fi_ops_fabric fabric_theirs, fabric_ours;
fi_ops_domain domain_theirs, domain_ours;
fi_ops_msg messages_theirs, messages_ours;

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
    messages_theirs = *(*ep)->msg;
    messages_ours = messages_theirs;
    messages_ours.send = send;
    messages_ours.sendv = sendv;
    messages_ours.inject = inject;
    (*ep)->msg = &messages_ours;
    return 0;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
    const int error = fabric_theirs.domain(fabric, info, domain, context);
    if (error) return error;
    domain_theirs = *(*domain)->ops;
    domain_ours = domain_theirs;
    domain_ours.endpoint = open_endpoint;
    (*domain)->ops = &domain_ours;
    return 0;
}

}  // namespace
}  // namespace weft::test

extern "C" int fi_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
    using namespace weft::test;
    using Open = int(fi_fabric_attr*, fid_fabric**, void*);
    auto* const theirs = reinterpret_cast<Open*>(::dlsym(RTLD_NEXT, "fi_fabric"));
    const int error = theirs(attr, fabric, context);
    // What a provider opens beneath itself is left alone.
    if (error || std::string_view(attr->prov_name) != "tcp;ofi_rxm") return error;
    fabric_theirs = *(*fabric)->ops;
    fabric_ours = fabric_theirs;
    fabric_ours.domain = open_domain;
    (*fabric)->ops = &fabric_ours;
    return 0;
}
