// What waits for tasks that live elsewhere, and may never end.
#pragma once

#include <mutex>

#include <weft/task_wait.h>

#include "core/deferred.h"

namespace weft::core {

// Of one context. Thread: its own, but remove(): any, for a program may resume what waits there.
class TaskWaits {
  public:
    using Wait = detail::TaskWait;

    ~TaskWaits();  // Those left are of none.
    void add(Wait& wait);
    void remove(Wait& wait);
    // The one that began last, of those whose task no offloaded work holds: what it is in may wait
    // for that. As work that ends it and resumes the coroutine; nullptr: there is none.
    Deferred* take_last();

  private:
    std::mutex mutex_;
    base::IntrusiveList<Wait::Node> all_;  // The last first.
};

}  // namespace weft::core
