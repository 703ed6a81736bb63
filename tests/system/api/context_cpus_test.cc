// The cpus of a runtime's contexts: their threads, and the threads that make their memory.
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "api/runtime_impl.h"
#include "base/cpu_set.h"
#include "support/capability.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/contexts.h"

using namespace weft;
using namespace weft::test;

namespace {

std::vector<unsigned> usable() {
    std::vector<unsigned> cpus;
    const auto set = base::CpuSet::of_this_thread();
    REQUIRE(set);
    for (unsigned cpu = 0; cpu < base::CpuSet::cpus_max; ++cpu) {
        if (set->contains(cpu)) cpus.push_back(cpu);
    }
    return cpus;
}

base::CpuSet one_cpu(unsigned cpu) {
    base::CpuSet set;
    set.add(cpu);
    return set;
}

// Notes on which cpus the threads may run that draw numbers.
struct WatchedRandom final : base::Random {
    std::uint64_t next() override {
        const std::lock_guard lock(mutex);
        cpus.push_back(*base::CpuSet::of_this_thread());
        return inner.next();
    }
    std::mutex mutex;
    base::KernelRandom inner;
    std::vector<base::CpuSet> cpus;
};

constexpr int has_no_limit = 100;

// In a child for which the system gives no thread; the text of the error is on standard error.
int end_of_create(const RuntimeOptions& options) {
    try {
        const Result<Runtime> runtime = Runtime::create(options);
        if (runtime) return has_no_limit;
        const std::string text(runtime.status().text());
        (void)!::write(STDERR_FILENO, text.data(), text.size());
        return runtime.status().code() == Code::resource_exhausted ? 0 : 1;
    } catch (const std::exception&) {
        return 2;
    }
}

}  // namespace

TEST_CASE("contexts: each runs on its cpu of the list, from the first again after the last") {
    const std::vector<unsigned> cpus = usable();
    const auto before = base::CpuSet::of_this_thread();
    RuntimeOptions options = with_contexts(5);
    options.cpus = {cpus.back(), cpus.front()};
    Runtime runtime = Runtime::create(options).value();
    const auto ask = [](unsigned) { return *base::CpuSet::of_this_thread(); };
    const std::vector<base::CpuSet> bound = runtime.block_on(runtime.on_all(ask));
    REQUIRE(bound.size() == 5);
    for (unsigned k = 0; k < 5; ++k) CHECK(bound[k] == one_cpu(options.cpus[k % 2]));
    CHECK(before == base::CpuSet::of_this_thread());  // The creator stays where it was.
}

TEST_CASE("contexts: each is made by a thread on its cpu, which first touches its memory") {
    const std::vector<unsigned> cpus = usable();
    RuntimeOptions options = with_contexts(3);
    options.cpus = {cpus.back(), cpus.front(), cpus.back()};
    api::RuntimeParts parts = api::production_parts();
    std::vector<std::shared_ptr<WatchedRandom>> made;
    std::mutex mutex;
    parts.more_random = [&] {
        const std::lock_guard lock(mutex);
        made.push_back(std::make_shared<WatchedRandom>());
        (void)made.back()->next();
        return made.back();
    };
    const auto impl = api::RuntimeImpl::make(options, std::move(parts));
    REQUIRE(impl);
    REQUIRE(made.size() == 2);  // Context 0 has the runtime's own.
    for (std::size_t i = 0; i < 2; ++i) {
        REQUIRE(made[i]->cpus.size() > 1);  // Also by the server of the context, for example.
        for (const base::CpuSet& set : made[i]->cpus) CHECK(set == one_cpu(options.cpus[i + 1]));
    }
}

TEST_CASE("contexts: a cpu that the process can't use is refused by its number") {
    RuntimeOptions options = with_contexts(2);
    options.cpus = {usable().front(), 8191};
    const Result<Runtime> runtime = Runtime::create(options);
    REQUIRE_FALSE(runtime);
    CHECK(runtime.status().code() == Code::invalid_argument);
    CHECK(runtime.status().text().starts_with("cpu 8191 (RuntimeOptions::cpu or cpus, "));
    options.cpus = {8192};
    CHECK(Runtime::create(options).status().text().find("has 8192") != std::string::npos);
    options.cpus = {usable().front()};
    options.cpu = usable().front();
    CHECK(Runtime::create(options).status().text().find("WEFT_CPUS") != std::string::npos);
}

TEST_CASE("contexts: a runtime for which the system gives no thread is refused, with cpus, too") {
    for (const bool has_cpus : {false, true}) {
        CAPTURE(has_cpus);
        RuntimeOptions options = with_contexts(2);
        if (has_cpus) options.cpus = {usable().front()};
        const ChildOutput output = output_of_child([&options] {
            const rlimit none{1, 1};  // This process has a thread already.
            if (::setrlimit(RLIMIT_NPROC, &none) != 0) return has_no_limit;
            // Root may start any number.
            if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return has_no_limit;
            return end_of_create(options);
        });
        if (output.end == has_no_limit) {
            note_capability("threads", "not tested here: limits on threads");
            return;
        }
        CAPTURE(output.text);
        CHECK(output.end == 0);
        CHECK(output.text.find("no thread for the context (ulimit -u") != std::string::npos);
    }
}

TEST_CASE("contexts: an exception of the thread that makes a context reaches the creator") {
    RuntimeOptions options = with_contexts(2);
    options.cpus = {usable().front()};
    api::RuntimeParts parts = api::production_parts();
    parts.more_random = []() -> std::shared_ptr<base::Random> { throw std::bad_alloc(); };
    CHECK_THROWS_AS(api::RuntimeImpl::make(options, std::move(parts)), std::bad_alloc);
}
