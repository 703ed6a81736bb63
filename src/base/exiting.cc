#include "base/exiting.h"

namespace weft::base {
namespace {

constinit thread_local bool exiting = false;

// exit() destroys the thread_local objects of its thread before any of static storage.
struct Witness {
    bool is_watching = true;
    ~Witness() { exiting = true; }
};

thread_local Witness witness;

}  // namespace

void watch_exit() { witness.is_watching = true; }

bool is_exiting() { return exiting; }

}  // namespace weft::base
