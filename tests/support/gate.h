// A suspension point for coroutines, and a counter of live objects.
#pragma once

#include <coroutine>
#include <utility>

namespace weft::test {

// Suspends until release(), which resumes the coroutine within the call, as completions may do.
struct Gate {
    std::coroutine_handle<> waiting;
    struct Awaiter {
        explicit Awaiter(Gate& at) : gate(at) {}
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> awaiting) { gate.waiting = awaiting; }
        void await_resume() const {}
        Gate& gate;
    };
    Awaiter operator co_await() { return Awaiter(*this); }
    void release() { std::exchange(waiting, nullptr).resume(); }
};

// Counts live objects, to check that each coroutine's locals are destroyed once.
struct Alive {
    explicit Alive(int& in) : count(in) { ++count; }
    Alive(const Alive&) = delete;
    ~Alive() { --count; }
    int& count;
};

}  // namespace weft::test
