#include "api/commons.h"

#include "base/steady_clock.h"
#include "bulk/block_pool.h"
#include "na/sm/sm.h"
#include "na/tcp/tcp.h"
#include "rpc/server_sessions.h"

#ifdef WEFT_WITH_OFI
#include "na/ofi/ofi.h"
#endif
#ifdef WEFT_WITH_VERBS
#include "na/verbs/verbs.h"
#endif

namespace weft::api {

RuntimeParts production_parts() {
    RuntimeParts parts;
    parts.clock = std::make_shared<base::SteadyClock>();
    parts.random = std::make_shared<base::KernelRandom>();
    parts.providers = std::make_shared<na::Registry>();
    parts.providers->add(na::make_sm_provider());
    parts.providers->add(na::make_tcp_provider());
    parts.providers->add(na::make_unix_provider());
#ifdef WEFT_WITH_OFI
    parts.providers->add(na::make_ofi_tcp_provider());
    parts.providers->add(na::make_ofi_verbs_provider());
#endif
#ifdef WEFT_WITH_VERBS
    parts.providers->add(na::make_verbs_provider());
#endif
    return parts;
}

static std::shared_ptr<core::Budgets> make_budgets(const RuntimeOptions& options) {
    if (options.contexts == 1) return nullptr;
    return std::make_shared<core::Budgets>(
        options,
        core::FixedLimits{bulk::BlockPool::held_bytes_max(options.argument_bytes_max),
                          rpc::ServerSessions::sessions_max, rpc::ServerSessions::slots_pool},
        options.contexts);
}

Commons::Commons(RuntimeOptions given, LogSink sink, RuntimeParts with)
    : options(std::move(given)),
      parts(std::move(with)),
      log(options.log_level, std::move(sink)),
      arena(na::Arena::make(options.arena_bytes_max)),
      incarnation{parts.random->next(), parts.random->next()},
      pool(core::offload_threads_of(options)),
      regions(contexts() == 1 ? nullptr : std::make_unique<bulk::RegionFamily>(contexts())),
      budgets(make_budgets(options)) {}

}  // namespace weft::api
