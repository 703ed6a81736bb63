// Threads of a program that turn the contexts of a runtime made with options.manual.
#pragma once

#include <atomic>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include <weft/runtime.h>

#include "support/contexts.h"

namespace weft::test {

inline RuntimeOptions by_hand(unsigned contexts) {
    RuntimeOptions options = with_contexts(contexts);
    options.manual = true;
    return options;
}

// Each turns one context until stop(). They have begun when the constructor, or add(), returns.
class TurningThreads {
  public:
    TurningThreads() = default;
    TurningThreads(const Runtime& runtime, const std::vector<unsigned>& contexts) {
        for (const unsigned k : contexts) add(runtime.context(k));
    }
    // Of all contexts.
    explicit TurningThreads(const Runtime& runtime) {
        for (unsigned k = 0; k < runtime.contexts(); ++k) add(runtime.context(k));
    }
    TurningThreads(const TurningThreads&) = delete;
    TurningThreads& operator=(const TurningThreads&) = delete;
    ~TurningThreads() { stop(); }

    void add(const ContextRef& context) {
        turned_.push_back(context);
        std::promise<void> begun;
        threads_.emplace_back([this, context, &begun] {
            context.turn();
            begun.set_value();
            while (!ends_) context.turn_until([this] { return ends_.load(); }, 1h);
        });
        begun.get_future().wait();
    }
    std::thread::id id(std::size_t i) const { return threads_[i].get_id(); }

    void stop() {
        ends_ = true;
        for (const ContextRef& one : turned_) one.executor().post([] {});
        for (std::thread& one : threads_) one.join();
        threads_.clear();
        turned_.clear();
    }

  private:
    std::atomic<bool> ends_{false};
    std::vector<ContextRef> turned_;
    std::vector<std::thread> threads_;
};

}  // namespace weft::test
