// Finds the contexts of this process by number, which objects that outlive a context may keep.
#pragma once

#include <cstdint>
#include <memory>

#include <weft/executor.h>

namespace weft::core {

class Context;

// Registers a context until end(). Thread: any.
class ContextRegistration {
  public:
    explicit ContextRegistration(Context& context);
    ContextRegistration(const ContextRegistration&) = delete;
    ContextRegistration& operator=(const ContextRegistration&) = delete;
    ~ContextRegistration() { end(); }
    void end();  // At the latest in the destructor.

    // The result keeps the context alive if it has an owner (Context::set_owner()). nullptr: no
    // context has that number, or it is being destroyed.
    static std::shared_ptr<Context> find(std::uint64_t number);
    // A context at this address has not ended. `context` may be destroyed.
    static bool is_running(const Executor* context);

  private:
    const std::uint64_t number_;
};

}  // namespace weft::core
