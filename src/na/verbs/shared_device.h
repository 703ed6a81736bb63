// An RDMA device that a runtime has open: what the endpoints of all its contexts have in common. An
// exposed region has one registration and one key for the queue pairs of all contexts, since a
// parent domain stands for its protection domain (ibv_alloc_parent_domain(3)).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <weft/result.h>

#include "base/thread_annotations.h"
#include "base/unique_fd.h"
#include "na/provider.h"
#include "na/verbs/rdma.h"

namespace weft::na::verbs {

// An event that a device reports.
struct AsyncEvent {
    enum class Affects : std::uint8_t {
        queue_pair,  // Its completions or connection report it, too.
        device,      // Nothing that is open works any more, or nothing of one endpoint.
        other,
    };
    Affects affects = Affects::other;
    std::string text = {};
    const void* queue = nullptr;  // The queue that failed; nullptr: the device.
};

// Thread: any, unless stated otherwise. No message and no transfer takes the mutex.
class SharedDevice {
    // All that makes two exposures the same one: each context uses the numbers of some regions.
    using RegionKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, const std::byte*,
                                 std::size_t, Access>;

  public:
    // `device`: from rdma_cm or ibv_get_device_list(). Errors: UNAVAILABLE, UNIMPLEMENTED (iWARP),
    // with the remedy.
    static Result<std::shared_ptr<SharedDevice>> open(ibv_device* device);
    SharedDevice(const SharedDevice&) = delete;
    SharedDevice& operator=(const SharedDevice&) = delete;

    std::string name() const { return ::ibv_get_device_name(context_->device); }
    ibv_context* context() const { return context_.get(); }
    ibv_pd* domain() const { return domain_.get(); }
    const ibv_device_attr& limits() const { return limits_; }
    std::uint32_t reads_max() const { return reads_max_; }
    std::size_t transfer_bytes_max() const { return transfer_bytes_max_; }

    // Registers memory for `access` (IBV_ACCESS_...). Errors: RESOURCE_EXHAUSTED, with the remedy.
    Result<Owned<ibv_mr>> register_memory(Bytes memory, int access) const;

    // ---- exposed regions
    // The registration of a region for the endpoints that expose it.
    struct Region {
        Owned<ibv_mr> memory = {};
        std::uint32_t uses = 0;  // Guarded by the device's mutex.
        const RegionKey* key = nullptr;
    };
    struct Exposed {
        Region* region = nullptr;
        bool is_new = false;  // No other endpoint exposed it before.
    };
    // For each call, one end_region(). Errors: as register_memory().
    Result<Exposed> expose(const Exposure& exposure) WEFT_EXCLUDES(mutex_);
    // The last one deregisters the region, which waits for accesses in flight and admits no later
    // one. Returns 0, or an errno: the region is still registered, and may be ended again.
    int end_region(Region& region) WEFT_EXCLUDES(mutex_);

    // ---- failures
    // An endpoint's part of the device. `bell` is readable once it has failed; none: the endpoint
    // is the only one, and reads the events itself.
    struct Part {
        const void* completions = nullptr;
        const void* receives = nullptr;
        base::UniqueFd bell = {};
        std::string failure = {};  // Guarded by the device's mutex; empty: it works.
    };
    void add_part(Part& part) WEFT_EXCLUDES(mutex_);
    void remove_part(const Part& part) WEFT_EXCLUDES(mutex_);
    // Reports the failure of a queue, or of the device, to the parts that are concerned.
    void report(const AsyncEvent& failure) WEFT_EXCLUDES(mutex_);
    // The reason why this part has failed; once. Thread: the part's.
    std::optional<std::string> take_failure(Part& part) WEFT_EXCLUDES(mutex_);
    // The next event of the device; nullopt: none is left. Failures are reported before it returns.
    std::optional<AsyncEvent> next_async_event() WEFT_EXCLUDES(mutex_);

  private:
    SharedDevice() = default;
    Status open_all(ibv_device* device);
    Region* find_region(const RegionKey& key) WEFT_REQUIRES(mutex_);

    Owned<ibv_context> context_;
    Owned<ibv_pd> domain_;
    ibv_device_attr limits_{};
    std::uint32_t reads_max_ = 1;
    std::size_t transfer_bytes_max_ = 0;

    base::Mutex mutex_;
    std::multimap<RegionKey, Region> regions_ WEFT_GUARDED_BY(mutex_);
    std::vector<Part*> parts_ WEFT_GUARDED_BY(mutex_);
};

// The devices that runtimes with several contexts have open.
class SharedDevices {
  public:
    // For an endpoint with these parts. Errors: as SharedDevice::open(). Thread: any.
    Result<std::shared_ptr<SharedDevice>> open(ibv_device* device, const EndpointParts& parts)
        WEFT_EXCLUDES(mutex_);

  private:
    struct Known {
        Incarnation runtime;
        std::weak_ptr<SharedDevice> device;
    };
    base::Mutex mutex_;
    std::vector<Known> known_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::na::verbs
