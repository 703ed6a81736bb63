// The contexts of this process, to be found by number: what outlives one may still know that.
#pragma once

#include <cstdint>
#include <memory>

namespace weft::core {

class Context;

// Until its end it is known. Thread: any.
class Living {
  public:
    explicit Living(Context& context);
    Living(const Living&) = delete;
    Living& operator=(const Living&) = delete;
    ~Living() { end(); }
    void end();  // Or earlier.

    // Kept meanwhile, if it has an owner (Context::set_owner()). nullptr: there is none of that
    // number, or it is being destroyed.
    static std::shared_ptr<Context> find(std::uint64_t number);

  private:
    Context& context_;
};

}  // namespace weft::core
