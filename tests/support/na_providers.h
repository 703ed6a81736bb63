// The providers that the conformance suite runs against. Each is in four places here: its header
// with a WEFT_TEST_…, the function of its Wire, a struct of its name, WEFT_TEST_PROVIDERS. Those
// that need a library are left out where the build lacks it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "na/provider.h"
#include "na/sim/sim.h"
#include "support/catch.h"

#if __has_include("na/sm/sm.h")
#include "na/sm/sm.h"
#define WEFT_TEST_SM , Sm
#else
#define WEFT_TEST_SM
#endif
#if __has_include("na/tcp/tcp.h")
#include "na/tcp/tcp.h"
#define WEFT_TEST_TCP , Tcp, Unix
#else
#define WEFT_TEST_TCP
#endif
#if __has_include("na/ofi/ofi.h") && WEFT_WITH_OFI
#include "na/ofi/ofi.h"
#define WEFT_TEST_OFI , OfiTcp, OfiVerbs
#else
#define WEFT_TEST_OFI
#endif

#if __has_include("na/verbs/verbs.h") && WEFT_WITH_VERBS
#include "na/verbs/verbs.h"
#define WEFT_TEST_VERBS , Verbs
#else
#define WEFT_TEST_VERBS
#endif

namespace weft::test {

// One network to test on. `world` is set for a simulated one.
struct Wire {
    std::string scheme;
    std::unique_ptr<na::Provider> provider;
    std::shared_ptr<na::sim::World> world;
};

namespace factories {
using namespace weft::na;

inline Wire sim_wire(base::Random& random) {
    na::sim::WorldOptions options;
    options.link.jitter = 3us;
    auto world = std::make_shared<na::sim::World>(random, options);
    return {"sim", na::sim::make_sim_provider(world), world};
}
#if __has_include("na/sm/sm.h")
inline Wire sm_wire() { return {"sm", make_sm_provider(), nullptr}; }
#endif
#if __has_include("na/tcp/tcp.h")
inline Wire tcp_wire() { return {"tcp", make_tcp_provider(), nullptr}; }
inline Wire unix_wire() { return {"unix", make_unix_provider(), nullptr}; }
#endif
#if __has_include("na/ofi/ofi.h") && WEFT_WITH_OFI
inline Wire ofi_tcp_wire() { return {"ofi+tcp", make_ofi_tcp_provider(), nullptr}; }
inline Wire ofi_verbs_wire() { return {"ofi+verbs", make_ofi_verbs_provider(), nullptr}; }
#endif
#if __has_include("na/verbs/verbs.h") && WEFT_WITH_VERBS
inline Wire verbs_wire() { return {"verbs", make_verbs_provider(), nullptr}; }
#endif
}  // namespace factories

// The names become part of the test titles: "a title - Sim".
namespace wires {
struct Sim {
    static Wire make(base::Random& random) { return factories::sim_wire(random); }
};
#if __has_include("na/sm/sm.h")
struct Sm {
    static Wire make(base::Random&) { return factories::sm_wire(); }
};
#endif
#if __has_include("na/tcp/tcp.h")
struct Tcp {
    static Wire make(base::Random&) { return factories::tcp_wire(); }
};
struct Unix {
    static Wire make(base::Random&) { return factories::unix_wire(); }
};
#endif
#if __has_include("na/ofi/ofi.h") && WEFT_WITH_OFI
struct OfiTcp {
    static Wire make(base::Random&) { return factories::ofi_tcp_wire(); }
};
struct OfiVerbs {
    static Wire make(base::Random&) { return factories::ofi_verbs_wire(); }
};
#endif
#if __has_include("na/verbs/verbs.h") && WEFT_WITH_VERBS
struct Verbs {
    static Wire make(base::Random&) { return factories::verbs_wire(); }
};
#endif
}  // namespace wires

}  // namespace weft::test

#define WEFT_TEST_PROVIDERS Sim WEFT_TEST_SM WEFT_TEST_TCP WEFT_TEST_OFI WEFT_TEST_VERBS

// Runs a body once per provider; `TestType` is the provider. Requires `using namespace
// weft::test::wires`.
#define CONFORMANCE(title) TEMPLATE_TEST_CASE(title, "", WEFT_TEST_PROVIDERS)
// Repeated by `make soak`: seeds of support/seed.h, and peers that are killed.
#define CONFORMANCE_SEEDED(title) TEMPLATE_TEST_CASE(title, "[seeded]", WEFT_TEST_PROVIDERS)
#define CONFORMANCE_KILL(title) TEMPLATE_TEST_CASE(title, "[kill]", WEFT_TEST_PROVIDERS)
