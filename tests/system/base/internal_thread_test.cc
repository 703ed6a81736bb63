// Settings of the threads that weft starts: signal masks, and the CPU of the context's thread.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <future>
#include <optional>
#include <utility>

#include <weft/offload.h>
#include <weft/runtime.h>

#include "base/internal_thread.h"
#include "support/capability.h"
#include "support/catch.h"
#include "support/child.h"

namespace weft::internal_thread_test {
namespace {

// Runs `work` on the context's thread. Returns when it has run.
void run_on_context(Runtime& runtime, const std::function<void()>& work) {
    std::promise<void> done;
    runtime.executor().post([&] {
        work();
        done.set_value();
    });
    done.get_future().wait();
}

void run_offloaded(Runtime& runtime, const std::function<void()>& work) {
    runtime.block_on(
        [](std::function<void()> body) -> Task<void> { co_await offload(body); }(work));
}

struct Place {
    const char* name;
    void (*run)(Runtime&, const std::function<void()>&);
};
constexpr Place places[] = {{"on the context's thread", run_on_context},
                            {"in offloaded work", run_offloaded}};

// ---- signals -----------------------------------------------------------------------------------

void touch(int protection, std::size_t bytes) {
    const int file = ::memfd_create("weft-test", MFD_CLOEXEC);
    (void)!::ftruncate(file, static_cast<off_t>(bytes));
    void* const page = ::mmap(nullptr, 4096, protection, MAP_SHARED, file, 0);
    [[maybe_unused]] const char read = *static_cast<volatile char*>(page);
}

void fault(int signal) {
    if (signal == SIGSEGV) return touch(PROT_NONE, 4096);
    if (signal == SIGBUS) return touch(PROT_READ, 0);
    ::pthread_kill(::pthread_self(), signal);
}

constexpr int handled = 42;

TEST_CASE("a fault on a runtime's thread runs the program's signal handler") {
    if (!test::can_start_threads_in_child) return;
    for (const Place& place : places) {
        for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
            CAPTURE(place.name, signal);
            CHECK(test::end_of_child([&] {
                      struct sigaction action {};
                      action.sa_handler = [](int) { ::_exit(handled); };
                      if (::sigaction(signal, &action, nullptr) != 0) return 1;
                      Runtime runtime = Runtime::create().value();
                      place.run(runtime, [&] { fault(signal); });
                      return 2;
                  }) == handled);
        }
    }
}

sigset_t mask_here() {
    sigset_t mask;
    sigemptyset(&mask);
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    return mask;
}

bool is_mask_here(const sigset_t& expected) {
    const sigset_t mask = mask_here();
    for (int signal = 1; signal < NSIG; ++signal) {
        if (sigismember(&mask, signal) != sigismember(&expected, signal)) return false;
    }
    return true;
}

// Whether `holds` returns true in a child that is forked here. `holds` allocates nothing.
template <class F>
bool holds_in_child(F holds) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(holds() ? 0 : 1);
    int status = 1;
    return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST_CASE("a child forked on a thread of a runtime has the signal mask of the runtime's creator") {
    sigset_t own, before;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR2);
    REQUIRE(::pthread_sigmask(SIG_BLOCK, &own, &before) == 0);
    {
        Runtime runtime = Runtime::create().value();
        const sigset_t expected = mask_here();
        for (const Place& place : places) {
            CAPTURE(place.name);
            bool is_quiet = false, is_undone = false, is_quiet_still = false;
            place.run(runtime, [&] {
                is_quiet = !is_mask_here(expected);
                is_undone = holds_in_child([&] { return is_mask_here(expected); });
                is_quiet_still = !is_mask_here(expected);
            });
            CHECK(is_quiet);
            CHECK(is_undone);
            CHECK(is_quiet_still);
        }
    }
    REQUIRE(::pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
}

// ---- cpus --------------------------------------------------------------------------------------

bool are_cpus_here(const base::CpuSet& expected) {
    return base::CpuSet::of_this_thread() == expected;
}

TEST_CASE("only the context's thread is bound to options.cpu") {
    const base::CpuSet all = base::CpuSet::of_this_thread().value();
    unsigned cpu = base::CpuSet::cpus_max;  // The last CPU: an unbound thread seldom starts there.
    while (!all.contains(--cpu)) {
    }
    base::CpuSet one;
    one.add(cpu);
    if (one == all) {
        test::note_capability("threads", "one cpu is allowed, which every thread has");
        return;
    }
    Runtime runtime = Runtime::create({.cpu = cpu}).value();
    const auto is_context_bound = [&] {
        bool is_bound = false;
        run_on_context(runtime, [&] { is_bound = are_cpus_here(one); });
        return is_bound;
    };
    CHECK(is_context_bound());
    bool is_offload_free = false, is_child_free = false, is_thread_free = false;
    bool is_inner_bound = false, is_inner_offload_free = false;
    run_offloaded(runtime, [&] { is_offload_free = are_cpus_here(all); });
    CHECK(is_offload_free);
    CHECK(is_context_bound());
    run_on_context(runtime, [&] {
        is_child_free = holds_in_child([&] { return are_cpus_here(all); });
        base::start_internal_thread([&] { is_thread_free = are_cpus_here(all); }).join();
    });
    CHECK(is_child_free);
    CHECK(is_thread_free);
    CHECK(is_context_bound());
    std::optional<Runtime> inner;
    run_on_context(runtime, [&] { inner = Runtime::create({.cpu = cpu}).value(); });
    run_on_context(*inner, [&] { is_inner_bound = are_cpus_here(one); });
    run_offloaded(*inner, [&] { is_inner_offload_free = are_cpus_here(all); });
    CHECK(is_inner_bound);
    CHECK(is_inner_offload_free);
    CHECK(are_cpus_here(all));
}

TEST_CASE("threads: a failed thread start names the limit on locked memory when that is set") {
    constexpr int not_allowed = 100;
    const test::ChildOutput output = test::output_of_child([] {
        const rlimit limit{4 << 20, 4 << 20};  // A stack usually has 8 MiB.
        // Root may lock any amount.
        if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return not_allowed;
        if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return not_allowed;
        if (::mlockall(MCL_FUTURE) != 0) return not_allowed;
        const Result<Runtime> runtime = Runtime::create();
        if (runtime) return not_allowed;  // Sanitizers make mlockall() do nothing.
        const std::string text(runtime.status().text());
        (void)!::write(STDERR_FILENO, text.data(), text.size());
        return runtime.status().code() == Code::resource_exhausted ? 0 : 1;
    });
    if (output.end == not_allowed) {
        test::note_capability("threads", "not tested here: limits on locked memory");
        return;
    }
    CAPTURE(output.text);
    CHECK(output.end == 0);
    CHECK(output.text.find("no thread for the context") != std::string::npos);
    CHECK(output.text.find("`ulimit -l`") != std::string::npos);
}

}  // namespace
}  // namespace weft::internal_thread_test
