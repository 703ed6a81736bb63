// A loop over tasks that end at once, compiled at one optimisation level: CMakeLists.txt. With HOPS
// it suspends for a turn now and then, which releases the stack where tail calls do not.
#include <weft/runtime.h>
#include <weft/sleep.h>

namespace {

weft::Task<int> one() { co_return 1; }
weft::Task<void> nothing() { co_return; }

weft::Task<int> loop(int rounds) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {
        sum += co_await one();
        co_await nothing();
#ifdef HOPS
        if (i % 1000 == 0) (void)co_await weft::sleep_for(weft::Duration::zero());
#endif
    }
    co_return sum;
}

}  // namespace

int main() {
    weft::RuntimeOptions options;
    options.manual = true;
    weft::Result<weft::Runtime> runtime = weft::Runtime::create(options);
    if (!runtime) return 2;
    return runtime->block_on(loop(500'000)) == 500'000 ? 0 : 1;
}
