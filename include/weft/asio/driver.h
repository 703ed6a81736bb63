// A driver that turns a runtime, or one context of it, inside a program's own io_context.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <weft/runtime.h>

namespace weft {

// Turns a runtime made with options.manual (any other aborts the program with a message) whenever
// an event arrives for it or work is due, one turn at a time, so that other handlers of the
// io_context run in between; sleeps with the io_context. A handler that completes in a turn and
// belongs to this io_context runs at once, inside the turn. To end the runtime, or to turn it by
// hand (turn(), turn_until(), block_on()), such a handler posts. The driver continues after the
// runtime was turned by hand.
//
// With several contexts (RuntimeOptions::contexts) it turns all of them, or the one that it is made
// for: several drivers then turn the contexts of a runtime on as many io_contexts, with a thread
// each, or on one.
//
// Thread: one, always the same, runs the executor: it is the context's thread. On another one the
// driver throws std::logic_error out of io_context::run(). (A runtime with a thread of its own
// needs no driver: its operations complete on any executor.)
// Lifetime: stopped or destroyed before the runtime, which must not move if the driver was made for
// it: a runtime that ends or gets a second driver for a context meanwhile aborts the program with a
// message. The io_context may be destroyed before both. io_context::run() does not return for lack
// of work while the driver runs.
class AsioDriver {
  public:
    // Before the first turn the driver waits for a turn that another thread takes in a wait of its
    // own (Runtime::block_on()). Throws boost::system::system_error when the io_context can't watch
    // one more descriptor.
    AsioDriver(const boost::asio::any_io_executor& executor, Runtime& runtime)
        : AsioDriver(executor, Turned{&runtime, {}}) {}
    AsioDriver(const boost::asio::any_io_executor& executor, const ContextRef& context)
        : AsioDriver(executor, Turned{nullptr, context}) {}
    AsioDriver(const AsioDriver&) = delete;
    AsioDriver& operator=(const AsioDriver&) = delete;
    ~AsioDriver() { stop(); }

    // The driver turns the runtime no more; operations in flight complete with the end of the
    // runtime. Thread: the io_context's, or any while none runs it.
    void stop() {
        if (const auto loop = loop_.lock()) loop->stop();
    }

  private:
    // All contexts of a runtime, or one.
    struct Turned {
        Runtime* all = nullptr;
        std::optional<ContextRef> one;

        std::uint32_t turn() const { return one ? one->turn() : all->turn(); }
        bool arm() const { return one ? one->arm() : all->arm(); }
        TimePoint next_deadline() const {
            return one ? one->next_deadline() : all->next_deadline();
        }
        int wait_fd() const { return one ? one->wait_fd() : all->wait_fd(); }
        void set_driven(bool is_driven) const {
            one ? one->set_driven(is_driven) : all->set_driven(is_driven);
        }
    };

    AsioDriver(const boost::asio::any_io_executor& executor, Turned turned) {
        const auto loop = std::make_shared<Loop>(executor, std::move(turned));
        loop_ = loop;
        loop->step_later();
    }

    // Owned by its handlers, which are destroyed with the io_context.
    class Loop : public std::enable_shared_from_this<Loop> {
      public:
        Loop(const boost::asio::any_io_executor& executor, Turned turned)
            : turned_(std::move(turned)),
              readable_(executor, turned_->wait_fd()),
              timer_(executor) {}
        Loop(const Loop&) = delete;
        Loop& operator=(const Loop&) = delete;
        ~Loop() { stop(); }

        void step_later() {
            if (std::exchange(posted_, true)) return;
            boost::asio::post(timer_.get_executor(), [self = shared_from_this()] {
                self->posted_ = false;
                self->step();
            });
        }

        void stop() {
            if (!turned_) return;
            turned_.end();
            readable_.release();  // The runtime owns it.
            timer_.cancel();
        }

      private:
        class Driven {
          public:
            explicit Driven(Turned turned) : turned_(std::move(turned)) {
                turned_.set_driven(true);
            }
            Driven(const Driven&) = delete;
            Driven& operator=(const Driven&) = delete;
            ~Driven() { end(); }
            void end() {
                if (std::exchange(is_driven_, false)) turned_.set_driven(false);
            }
            explicit operator bool() const { return is_driven_; }
            const Turned* operator->() const { return &turned_; }

          private:
            const Turned turned_;
            bool is_driven_ = true;
        };

        void step() {
            if (!turned_ || posted_) return;
            check_thread();
            const bool busy = turned_->turn() > 0;
            if (!turned_) return;  // A handler stopped the driver.
            if (busy || !turned_->arm()) return step_later();
            wait_readable();
            wait_due();
        }

        void wait_readable() {
            if (std::exchange(watching_, true)) return;
            readable_.async_wait(readable_.wait_read,
                                 [self = shared_from_this()](const auto& error) {
                                     self->watching_ = false;
                                     if (!error) self->step();
                                 });
        }

        // A timer that fires too early costs a turn; for an earlier deadline it is armed again.
        void wait_due() {
            const TimePoint due = turned_->next_deadline();
            if (due >= due_) return;
            due_ = due;
            timer_.expires_at(due);
            timer_.async_wait([self = shared_from_this()](const auto& error) {
                if (error) return;
                self->due_ = never;
                self->step();
            });
        }

        // Throws on a second thread: two turns at once, or a call during a turn, would corrupt the
        // context.
        void check_thread() {
            if (thread_ == std::thread::id()) thread_ = std::this_thread::get_id();
            if (thread_ == std::this_thread::get_id()) return;
            step_later();  // On the right thread.
            throw std::logic_error(
                "weft::AsioDriver: more than one thread runs its io_context; give the runtime a "
                "thread of its own (without options.manual) or an io_context of one thread");
        }

        Driven turned_;  // False: stopped.
        boost::asio::posix::stream_descriptor readable_;
        boost::asio::steady_timer timer_;
        std::thread::id thread_;
        TimePoint due_ = never;  // When the timer fires.
        bool watching_ = false;
        bool posted_ = false;
    };

    std::weak_ptr<Loop> loop_;
};

}  // namespace weft
