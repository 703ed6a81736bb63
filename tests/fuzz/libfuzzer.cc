// What a libFuzzer program does first. A library of libfabric's handles signals before main() (see
// src/na/ofi/signals.cc); libFuzzer leaves alone what is handled.
#include <csignal>
#include <initializer_list>

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE}) {
        std::signal(signal, SIG_DFL);
    }
    return 0;
}
