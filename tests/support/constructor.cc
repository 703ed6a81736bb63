// A library with a constructor that runs the program's function while the loader's lock is held.
#include <cstdlib>

namespace {

[[gnu::constructor]] void run() {
    const char* const address = std::getenv("WEFT_TEST_CONSTRUCTOR");
    if (!address) return;
    reinterpret_cast<void (*)()>(std::strtoull(address, nullptr, 16))();
}

}  // namespace
