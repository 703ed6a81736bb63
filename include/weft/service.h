// The services of a server: methods by name, each with a handler.
#pragma once

#include <weft/call.h>
#include <weft/group_options.h>
#include <weft/method.h>

namespace weft {

// The uses that a method allows.
struct MethodTraits {
    // The members of a group run the method when the group is called as a whole. Such a call has no
    // client that could die or cancel, so only methods made for it may be called so.
    bool collective = false;
    // For Reduction::Operation::method; nullptr: the method's replies can't be merged.
    MergeFunction merge = nullptr;
};

// Receives the methods of a service.
class MethodRegistrar {
  public:
    // Adds a method that `handler` serves. The first failure is the result of Runtime::add() or
    // serve(): INVALID_ARGUMENT for an empty handler, ALREADY_EXISTS for a method that is there.
    void add(const MethodId& method, RawHandler handler) { add(method, std::move(handler), {}); }
    virtual void add(const MethodId& method, RawHandler handler, MethodTraits traits) = 0;

  protected:
    ~MethodRegistrar() = default;
};

// Base of the services that protoc-gen-weft generates, and of services written on bytes.
// Lifetime: must outlive each Runtime that serves it: declare it before the Runtime, say.
// Destroying it earlier aborts the program with a message; in exit() the message is written, and
// those runtimes are left as they are. After the end of the Runtime, or in a forked child's copy,
// any order is allowed.
class Service {
  public:
    virtual ~Service();
    // Runs on the context's thread. An exception leaves Runtime::add() or serve(), and no method is
    // added.
    virtual void register_methods(MethodRegistrar& registrar) = 0;
};

}  // namespace weft
