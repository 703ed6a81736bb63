// Nothing would await the task: its body would never run.
// EXPECT this callback returns a task or an operation
#include <weft/runtime.h>

void add(weft::Runtime& runtime, weft::MethodRegistrar& methods) {
#ifdef ALLOWED
    const auto handle = [&runtime](weft::Call call) {
        runtime.spawn([call = std::move(call)]() mutable -> weft::Task<void> {
            call.reply({});
            co_return;
        });
    };
#else
    const auto handle = [](weft::Call call) -> weft::Task<void> {
        call.reply({});
        co_return;
    };
    (void)runtime;
#endif
    methods.add(weft::MethodId("a/b"), handle);
}
