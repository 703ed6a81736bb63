// What a server offers: methods by name, each with a handler.
#pragma once

#include <weft/call.h>
#include <weft/group_options.h>
#include <weft/method.h>

namespace weft {

// What a method may be used for.
struct MethodTraits {
    // The members of a group run it when the group is called as a whole. Such a call has no client
    // that could die or cancel, so only methods made for it may be called so.
    bool collective = false;
    // For Reduction::Operation::method; nullptr: its replies can't be merged.
    MergeFunction merge = nullptr;
};

// Where a service puts its methods.
class MethodRegistrar {
  public:
    // A method served by `handler`.
    void add(const MethodId& method, RawHandler handler) { add(method, std::move(handler), {}); }
    virtual void add(const MethodId& method, RawHandler handler, MethodTraits traits) = 0;

  protected:
    ~MethodRegistrar() = default;
};

// Base of what protoc-gen-weft generates and of services written on bytes.
// Lifetime: must outlive each Runtime that serves it: is declared before it, say. One that is
// destroyed before them aborts the program and says so; in exit() it says so, and those runtimes
// are left as they are. Where the Runtime has ended, or in a forked child's copy, any order will
// do.
class Service {
  public:
    virtual ~Service();
    // What it throws leaves Runtime::add() or serve(), and nothing is added.
    virtual void register_methods(MethodRegistrar& registrar) = 0;
};

}  // namespace weft
