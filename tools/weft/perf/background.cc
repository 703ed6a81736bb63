#include "perf/background.h"

namespace weft::tool {

Status Background::start(std::uint64_t bytes) {
    Result<RegionRef> remote = client_.expose_at_server(bytes);
    if (!remote) return std::move(remote).status();
    remote_ = *remote;
    Result<Buffer> local = client_.runtime().allocate(bytes);
    if (!local) return std::move(local).status();
    local_ = *std::move(local);
    if (Status status = client_.transfer(put_, remote_, local_); !status.ok()) return status;
    since_ = std::chrono::steady_clock::now();
    issue();
    return {};
}

void Background::issue() {
    under_way_ = true;
    auto done = [this](const Status& status) {
        under_way_ = false;
        until_ = std::chrono::steady_clock::now();
        if (!status.ok()) {
            failure_ = status;
            return;
        }
        ++moved_;
        if (!stopping_) issue();
    };
    if (put_) {
        client_.channel().put(remote_, 0, local_, {}, done);
    } else {
        client_.channel().get(remote_, 0, local_, {}, done);
    }
}

Status Background::stop() {
    stopping_ = true;
    client_.runtime().turn_until([this] { return !under_way_; }, Duration::max());
    if (failure_.ok()) return {};
    return Status(failure_).in("a transfer beside the calls");
}

double Background::mib_per_s() const {
    const double seconds = std::chrono::duration<double>(until_ - since_).count();
    return seconds > 0 ? static_cast<double>(moved_ * local_.size()) / 1048576 / seconds : 0;
}

}  // namespace weft::tool
