// The server's half of the metric `proto`.
#pragma once

#include <memory>

#include <weft/service.h>

namespace weft::tool {

// A generated service (bench.proto) behind the interface that every runtime serves.
std::unique_ptr<Service> make_bench_service();

}  // namespace weft::tool
