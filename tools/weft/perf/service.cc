#include "perf/service.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>

#include "base/codec.h"
#include "perf/device_counters.h"
#include "perf/first_line.h"
#include "perf/na.h"
#include "perf/proto.h"
#include "perf/server_process.h"

namespace weft::tool {

// The memory and regions that peers can make the server hold.
static constexpr std::uint64_t exposed_bytes_max = std::uint64_t{4} << 30;
static constexpr std::size_t regions_max = 64;

void PerfService::register_methods(MethodRegistrar& registrar) {
    registrar.add(perf_reply, [](Call call) {
        if (call.request().size() < 4) {
            return call.fail(fail(Code::invalid_argument, "the request has no reply size"));
        }
        std::uint32_t bytes = base::load<std::uint32_t>(call.request().data());
        if (bytes > perf_reply_bytes_max) {
            return call.fail(fail(Code::invalid_argument, "the reply size is out of range"));
        }
        call.reply_with(BodyWriter{bytes, &bytes, [](void* object, std::byte* to) {
                                       std::memset(to, 0x5a, *static_cast<std::uint32_t*>(object));
                                   }});
    });
    registrar.add(perf_work, [](Call call) {
        const ByteView request = call.request();
        if (request.size() < 4 || base::load<std::uint32_t>(request.data()) > perf_work_max / 1ns) {
            return call.fail(fail(Code::invalid_argument, "the request has no time of work"));
        }
        const TimePoint end =
            std::chrono::steady_clock::now() + Duration(base::load<std::uint32_t>(request.data()));
        while (std::chrono::steady_clock::now() < end) {
        }
        call.reply(request);
    });
    registrar.add(perf_device_counters, [this](Call call) {
        call.reply(as_bytes(encode(read_device_counters(runtime_))));
    });
    registrar.add(perf_broadcast, [](Call call) { call.reply({}); }, {.collective = true});
    registrar.add(perf_join, [this](Call call) {
        const Status status = join(call.request());
        if (!status.ok()) return call.fail(rejected(status));
        call.reply({});
    });
    registrar.add(perf_expose, [this](Call call) {
        if (call.request().size() != 8) {
            return call.fail(fail(Code::invalid_argument, "the request is not a size of 8 bytes"));
        }
        Result<RegionRef> ref = expose(base::load<std::uint64_t>(call.request().data()));
        if (!ref) return call.fail(ref.status());
        std::array<std::byte, RegionRef::wire_bytes> bytes;
        ref->encode(bytes);
        call.reply(bytes);
    });
}

Status PerfService::join(ByteView request) {
    if (request.size() < sizeof(std::uint32_t)) {
        return fail(Code::invalid_argument, "the request has no rank");
    }
    Result<GroupView> view = GroupView::decode(as_text(request.subspan(sizeof(std::uint32_t))));
    if (!view) return std::move(view).status();
    return runtime_.join(*std::move(view), base::load<std::uint32_t>(request.data()));
}

Result<RegionRef> PerfService::expose(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (const auto known = exposed_.find(bytes); known != exposed_.end()) {
        return known->second.region.ref();
    }
    std::uint64_t total = bytes;
    for (const auto& [size, exposed] : exposed_) total += size;
    if (bytes == 0 || bytes > exposed_bytes_max) {
        return rejected(Code::invalid_argument, "a measured region has 1 byte to 4 GiB");
    }
    if (total > exposed_bytes_max || exposed_.size() >= regions_max) {
        return fail(Code::resource_exhausted,
                    "the server exposes 1 byte to 4 GiB in at most 64 regions for measurements");
    }
    Result<Buffer> memory = runtime_.allocate(bytes);
    if (!memory) return std::move(memory).status();
    std::memset(memory->data(), 0x5a, bytes);
    Result<Region> region = runtime_.expose(*memory, {.access = Access::read_write});
    if (!region) return std::move(region).status();
    const RegionRef ref = region->ref();
    exposed_[bytes] = {*memory, *std::move(region)};
    return ref;
}

static Status serve_runtime(const PerfOptions& options) {
    RuntimeOptions with;
    with.wait = options.wait;
    with.verbs_without = options.without;
    with.contexts = options.contexts;
    // Both outlive the runtime.
    std::optional<PerfService> service;
    const std::unique_ptr<Service> bench = make_bench_service();
    Result<Runtime> runtime = Runtime::create(with);
    if (!runtime) return std::move(runtime).status();
    service.emplace(*runtime);
    if (Status status = runtime->add(shared(*bench)); !status.ok()) return status;
    if (Status status = runtime->serve(shared(*service), options.listen); !status.ok())
        return status;
    for (const std::string& uri : runtime->addresses()) {
        if (Status status = print_listening(uri); !status.ok()) return status;
    }
    Status status = runtime->run();
    alarm(2);  // Ends the process if its shutdown hangs.
    return status;
}

Status serve_perf(const PerfOptions& options) {
    Status status = options.bare ? serve_bare(options, print_listening) : serve_runtime(options);
    if (!status.ok()) print_failed(status);
    return status;
}

}  // namespace weft::tool
