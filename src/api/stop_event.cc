#include "api/stop_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

#include "base/own_descriptor.h"

namespace weft::api {

StopEvent::StopEvent()
    : fd_(base::UniqueFd::close_on_fork([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {}

void StopEvent::stop() {
    is_stopped_ = true;
    ++stops_;
    const std::uint64_t one = 1;
    (void)base::check_open(write(fd_.get(), &one, sizeof one));
    --stops_;
}

void StopEvent::await_stops() const {
    while (stops_ != 0) std::this_thread::yield();
}

}  // namespace weft::api
