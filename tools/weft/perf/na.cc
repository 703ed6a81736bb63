#include "perf/na.h"

#include <array>
#include <csignal>
#include <deque>
#include <vector>

#include "core/frame.h"
#include "perf/loop.h"
#include "perf/server_process.h"

namespace weft::tool {

using core::FrameHead;

namespace {

TimePoint steady_now() { return std::chrono::steady_clock::now(); }

class NaOperation final : public Operation {
  public:
    NaOperation(BareEndpoint& bare_endpoint, na::PeerId peer, std::size_t bytes, Loop& loop,
                std::uint32_t inflight)
        : endpoint_(bare_endpoint.endpoint()),
          peer_(peer),
          loop_(loop),
          under_way_(inflight),
          frame_(std::max(bytes, sizeof(FrameHead))) {}

    void issue(std::uint32_t slot) override {
        under_way_[slot] = true;
        if (!refused_.empty() || !send(slot)) refused_.push_back(slot);
    }

    std::uint32_t turn() override { return turn(steady_now()); }

    void turn_and_sleep(Duration longest) override {
        if (turn() == 0) sleep_on(endpoint_, longest);
    }

  private:
    bool send(std::uint32_t slot) {
        base::store(frame_.data(),
                    FrameHead{core::FrameKind::request, 0, static_cast<std::uint16_t>(slot),
                              static_cast<std::uint32_t>(frame_.size())});
        return send_frame(endpoint_, peer_, frame_);
    }

    std::uint32_t turn(TimePoint now) {
        std::array<na::Event, 64> events;
        const std::size_t count = endpoint_.poll(events, now);
        for (std::size_t i = 0; i < count; ++i) on_event(events[i]);
        while (!refused_.empty() && send(refused_.front())) refused_.pop_front();
        endpoint_.flush();
        return static_cast<std::uint32_t>(count);
    }

    void on_event(const na::Event& event) {
        if (event.kind == na::EventKind::message) {
            core::for_each_frame(event.bytes, [&](const FrameHead& head, ByteView) {
                if (head.aux < under_way_.size() && under_way_[head.aux]) {
                    under_way_[head.aux] = false;
                    loop_.succeeded(head.aux);
                }
                return true;
            });
        } else if (event.kind == na::EventKind::peer_down) {
            const Status why = fail(Code::unavailable, endpoint_.error());
            for (std::uint32_t slot = 0; slot < under_way_.size(); ++slot) {
                if (!under_way_[slot]) continue;
                under_way_[slot] = false;
                loop_.failed(slot, why);
            }
        }
    }

    na::Endpoint& endpoint_;
    const na::PeerId peer_;
    Loop& loop_;
    std::vector<char> under_way_;
    std::vector<std::byte> frame_;
    std::deque<std::uint32_t> refused_;
};

volatile std::sig_atomic_t stop_requested = 0;

// Echoes each frame; queues frames that the transport refuses.
class BareEcho {
  public:
    explicit BareEcho(na::Endpoint& endpoint) : endpoint_(endpoint) {}

    std::uint32_t turn(TimePoint now) {
        std::array<na::Event, 64> events;
        const std::size_t count = endpoint_.poll(events, now);
        for (std::size_t i = 0; i < count; ++i) {
            const na::PeerId peer = events[i].peer;
            if (events[i].kind == na::EventKind::message) {
                core::for_each_frame(events[i].bytes, [&](const FrameHead&, ByteView frame) {
                    echo(peer, frame);
                    return true;
                });
            } else if (events[i].kind == na::EventKind::peer_down) {
                std::erase_if(refused_, [&](const Refused& old) { return old.peer == peer; });
            }
        }
        while (!refused_.empty() &&
               send_frame(endpoint_, refused_.front().peer, refused_.front().frame)) {
            refused_.pop_front();
        }
        endpoint_.flush();
        return static_cast<std::uint32_t>(count);
    }

  private:
    struct Refused {
        na::PeerId peer;
        std::vector<std::byte> frame;
    };

    void echo(na::PeerId peer, ByteView frame) {
        if (refused_.empty() && send_frame(endpoint_, peer, frame)) return;
        // The client of `weft perf` has at most 65535 frames in flight; more are dropped.
        if (refused_.size() < 65536) refused_.push_back({peer, {frame.begin(), frame.end()}});
    }

    na::Endpoint& endpoint_;
    std::deque<Refused> refused_;
};

}  // namespace

Result<Measurement> measure_na(const PerfOptions& options, const std::string& uri,
                               Duration window) {
    if (options.inflight > 65535) {
        return fail(Code::invalid_argument, "the na metric has at most 65535 messages in flight");
    }
    Result<std::unique_ptr<BareEndpoint>> bare_endpoint =
        BareEndpoint::open(options.transport, "", options.wait);
    if (!bare_endpoint) return std::move(bare_endpoint).status();
    Result<na::PeerId> peer = (*bare_endpoint)->connect(uri, 30s);
    if (!peer) return std::move(peer).status();
    if (const na::PeerInfo* info = (*bare_endpoint)->endpoint().info(*peer);
        info && options.size > info->message_bytes_max) {
        return fail(Code::invalid_argument, "a message over " + options.transport +
                                                " has at most " +
                                                std::to_string(info->message_bytes_max) + " bytes");
    }
    Loop loop({options.inflight, options.wait, std::min<Duration>(60ms, window), window});
    NaOperation operation(**bare_endpoint, *peer, options.size, loop, options.inflight);
    return loop.run(operation);
}

Result<std::optional<double>> bare_round_trip_ns(const PerfOptions& options, const CpuPair& cpus,
                                                 Duration budget) {
    Result<ServerProcess> server = ServerProcess::start(options, {cpus.server}, true);
    if (!server) return std::move(server).status();
    PerfOptions alone = options;
    alone.inflight = 1;
    Result<Measurement> measured = measure_na(alone, server->uri(), budget);
    if (!measured) {
        if (measured.status().code() == Code::invalid_argument) return std::optional<double>();
        return std::move(measured).status();
    }
    if (measured->failed > 0) return measured->first_failure;
    return std::optional<double>(measured->ns(0.5));
}

Status serve_bare(const PerfOptions& options, Status (*listening)(const std::string& uri)) {
    std::signal(SIGTERM, [](int) { stop_requested = 1; });
    std::signal(SIGINT, [](int) { stop_requested = 1; });
    Result<std::unique_ptr<BareEndpoint>> bare_endpoint =
        BareEndpoint::open("", options.listen, options.wait);
    if (!bare_endpoint) return std::move(bare_endpoint).status();
    na::Endpoint& endpoint = (*bare_endpoint)->endpoint();
    if (Status status = listening(endpoint.address()); !status.ok()) return status;
    BareEcho echo(endpoint);
    TimePoint last_event = steady_now();
    while (!stop_requested) {
        const TimePoint now = steady_now();
        if (echo.turn(now) > 0) {
            last_event = now;
        } else if (options.wait == WaitMode::block ||
                   (options.wait == WaitMode::adaptive && now - last_event > 20us)) {
            sleep_on(endpoint, 100ms);
            last_event = steady_now();
        }
    }
    return {};
}

}  // namespace weft::tool
