// Which runtimes serve which service. A service that is destroyed before such a runtime ends the
// program with a message: its handlers would run in freed memory.
#pragma once

#include <memory>

#include <weft/service.h>

namespace weft::api {

class RuntimeImpl;

// From this call on `impl` calls the handlers of `service`. Thread: any, like all of these.
void register_served(const Service& service, const std::weak_ptr<RuntimeImpl>& impl);
// `impl` has ended: it calls no handler any more.
void unregister_served(const RuntimeImpl& impl);

}  // namespace weft::api
