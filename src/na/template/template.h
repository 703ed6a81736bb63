// An empty transport: the guide for new ones (docs/write-a-transport.md). It keeps the contract of
// provider.h with a network that reaches no peer. "Here" marks each place that a transport writes.
// Tests compile and check it; the library does not contain it.
#pragma once

#include <memory>

#include "na/provider.h"

namespace weft::na {

std::unique_ptr<Provider> make_template_provider();

}  // namespace weft::na
