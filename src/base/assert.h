// Assertions about our own code. Never about bytes of a peer, input of a user or answers of the
// kernel: those are judged and reported. What a program may not do has its own sentence.
#pragma once

namespace weft::base {
[[noreturn]] void assertion_failed(const char* what, const char* file, int line);
// For a call that has no result to refuse with: writes "weft: CALL: WHY" to standard error and
// aborts. `why` names the remedy.
[[noreturn]] void abort_misused(const char* call, const char* why);
}  // namespace weft::base

// Stays on in release builds: for facts whose violation would corrupt memory.
#define WEFT_ASSERT(fact) \
    ((fact) ? (void)0 : ::weft::base::assertion_failed(#fact, __FILE__, __LINE__))

// Debug builds only: for the hot path.
#ifdef NDEBUG
#define WEFT_DCHECK(fact) ((void)sizeof(!(fact)))
#else
#define WEFT_DCHECK(fact) WEFT_ASSERT(fact)
#endif
