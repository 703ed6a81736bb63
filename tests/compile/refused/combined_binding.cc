// The result of combined tasks is one object: GCC 15 destroys the parts of a tuple wrongly.
// EXPECT decompose
#include <string>

#include <weft/combine.h>

weft::Task<std::string> text() { co_return "text"; }

weft::Task<std::string> texts() {
#ifdef ALLOWED
    const auto both = co_await weft::when_all(text(), text());
    co_return both.get<0>() + both.get<1>();
#else
    const auto [one, other] = co_await weft::when_all(text(), text());
    co_return one + other;
#endif
}
