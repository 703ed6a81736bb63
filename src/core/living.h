// The contexts of this process, to be found by address: what outlives one may still know that.
#pragma once

#include <weft/executor.h>

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

    // nullptr: there is none at that address, or this thread is not the one that turns it.
    static Context* of_this_thread(const Executor* address);

  private:
    Context& context_;
};

}  // namespace weft::core
