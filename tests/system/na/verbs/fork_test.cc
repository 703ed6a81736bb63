// RDMA descriptors in a forked child.
#include "support/child.h"
#include "support/special_descriptors.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("verbs fork: a forked child keeps no descriptor of a device or its connections") {
    const auto before = special_descriptors();
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    rig->connect(client, server);
    const int of_rdma_cm = 1;  // rdma_cm's own descriptor of the device, which stays open.
    CHECK(descriptors_besides(before) > of_rdma_cm);
    CHECK(end_of_child([&] { return descriptors_besides(before); }) == of_rdma_cm);
}
