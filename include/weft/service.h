// What a server offers: methods by name, each with a handler.
#pragma once

#include <weft/call.h>
#include <weft/method.h>

namespace weft {

// Where a service puts its methods.
class MethodRegistrar {
  public:
    // A method served by `handler`.
    virtual void add(const MethodId& method, RawHandler handler) = 0;

  protected:
    ~MethodRegistrar() = default;
};

// Base of what protoc-gen-weft generates and of services written on bytes.
// Lifetime: must outlive the Runtime that serves it.
class Service {
  public:
    virtual ~Service() = default;
    virtual void register_methods(MethodRegistrar& registrar) = 0;
};

}  // namespace weft
