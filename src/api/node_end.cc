// The end of one context.
#include "api/node.h"
#include "base/assert.h"

namespace weft::api {

void Node::cancel_all(const Status& why) {
    WEFT_ASSERT(context.is_entered() && !why.ok());
    client.end_sessions();  // While there are connections to send it.
    context.shutdown(why);
    client.shutdown(why);
    server.shutdown(why);
    bulk.transfers.shutdown(why);
    bulk.regions->close_all();
}

void Node::close_endpoints() {
    const core::Context::EnterGuard scope(context);
    bulk.transfers.keep_held();
    context.close_endpoints();
}

void Node::close_regions() {
    const core::Context::EnterGuard scope(context);
    bulk.regions->shutdown();
}

void Node::close_descriptors() {
    WEFT_ASSERT(context.has_ended());
    driver.close();
    context.close_wake_fd();
}

}  // namespace weft::api
