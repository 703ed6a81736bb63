// Assertions about our own code. Never about bytes of a peer, input of a user or answers of the
// kernel: those are judged and reported.
#pragma once

namespace weft::base {
[[noreturn]] void assertion_failed(const char* what, const char* file, int line);
// For a program's misuse of what has no result to report it with: writes the sentence to standard
// error and aborts.
[[noreturn]] void misused(const char* sentence);
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
