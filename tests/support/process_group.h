// A group of servers in child processes, which are killed, stopped and restarted. Memory shared by
// all processes records the calls that they ran and the broadcasts that they may reply to.
#pragma once

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "api/runtime_impl.h"
#include "base/codec.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/test_timeout.h"

namespace weft::test {

inline constexpr MethodId run_method{"test.Kill/Run"};    // The body: a broadcast's number.
inline constexpr MethodId asks_method{"test.Kill/Asks"};  // Calls of a rank in flight.

// State shared by one rank and the test.
struct RankBoard {
    static constexpr std::size_t broadcasts_max = 4096;
    enum Phase : std::uint32_t { starting, listening, joined, failed };

    std::atomic<std::uint32_t> phase{starting};
    char uri[128] = {};
    std::atomic<std::uint32_t> gate{0};   // The last broadcast that may be replied to.
    std::atomic<std::uint32_t> moved{0};  // Incremented when the gate moves.
    std::atomic<std::uint8_t> ran[broadcasts_max] = {};

    // Not FUTEX_PRIVATE: the word is shared between processes.
    static void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
        const timespec at_most{1, 0};
        ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &at_most, nullptr, 0);
    }
    static void set(std::atomic<std::uint32_t>& word, std::uint32_t value) {
        word = value;
        ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
};

struct GroupBoard {
    static constexpr std::uint32_t ranks_max = 16;
    std::atomic<std::uint32_t> has_view{0};
    char view[ranks_max * 256] = {};
    RankBoard ranks[ranks_max];
};

// A rank in its own process. Handlers wait for the gate outside of the context's thread.
class RankServer final : public Service {
  public:
    RankServer(GroupBoard& board, std::uint32_t rank)
        : group_(board), board_(board.ranks[rank]), rank_(rank) {}

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(run_method, [this](Call call) { run(std::move(call)); },
                      {.collective = true});
        registrar.add(asks_method, [this](Call call) {
            const std::uint32_t asks = node_of(runtime_).client.in_flight();
            call.reply(as_bytes(std::to_string(asks)));
        });
    }

    // Never returns.
    [[noreturn]] void serve(const std::string& uri) {
        if (!listen(uri)) {
            RankBoard::set(board_.phase, RankBoard::failed);
            ::_exit(1);
        }
        const std::string address = runtime_.addresses().front();
        address.copy(board_.uri, sizeof board_.uri - 1);
        RankBoard::set(board_.phase, RankBoard::listening);
        while (group_.has_view == 0) RankBoard::wait(group_.has_view, 0);
        const Result<GroupView> view = GroupView::parse(group_.view);
        const bool is_in = view && runtime_.join(*view, rank_).ok();
        RankBoard::set(board_.phase, is_in ? RankBoard::joined : RankBoard::failed);
        for (std::uint32_t seen = 0;;) {
            RankBoard::wait(board_.moved, seen);
            seen = board_.moved;
            runtime_.executor().post([this] { open_gate(); });
        }
    }

  private:
    bool listen(const std::string& uri) {
        // The port of the previous life may linger for a moment.
        for (int tries = 0; tries < 200; ++tries) {
            const Status served = runtime_.serve(*this, uri);
            if (served.ok()) return true;
            if (served.code() != Code::already_exists) break;
            ::usleep(10'000);
        }
        return false;
    }
    void run(Call call) {
        const auto number = base::load<std::uint32_t>(call.request().data());
        ++board_.ran[number];
        if (number <= board_.gate) return answer(call);
        held_.emplace_back(number, std::move(call));
    }
    void open_gate() {
        for (auto& [number, call] : std::exchange(held_, {})) {
            if (number <= board_.gate) {
                answer(call);
            } else {
                held_.emplace_back(number, std::move(call));
            }
        }
    }
    void answer(Call& call) const { call.reply(as_bytes(std::to_string(rank_))); }

    GroupBoard& group_;
    RankBoard& board_;
    const std::uint32_t rank_;
    std::vector<std::pair<std::uint32_t, Call>> held_;
    Runtime runtime_ = Runtime::create().value();
};

class ProcessGroup {
  public:
    // `uri`: tcp with port 0, or a name to which the rank is appended.
    ProcessGroup(std::uint32_t size, const std::string& uri) : pids_(size, -1) {
        REQUIRE(board_ != MAP_FAILED);
        new (board_) GroupBoard;
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            fork_one(rank, uri.starts_with("sm://") ? uri + "-" + std::to_string(rank) : uri);
        }
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            await(rank, RankBoard::listening);
            members.push_back({rank, {at(rank).uri}});
        }
        view_ = GroupView::make("killed", 1, std::move(members)).value();
        const std::string json = view_->to_json();
        REQUIRE(json.size() < sizeof board_->view);
        json.copy(board_->view, json.size());
        RankBoard::set(board_->has_view, 1);
        for (std::uint32_t rank = 0; rank < size; ++rank) await(rank, RankBoard::joined);
    }
    ~ProcessGroup() {
        for (std::uint32_t rank = 0; rank < pids_.size(); ++rank) kill(rank);
        ::munmap(board_, sizeof *board_);
    }
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;

    void kill(std::uint32_t rank) {
        if (pids_[rank] <= 0) return;
        ::kill(pids_[rank], SIGKILL);
        ::waitpid(pids_[rank], nullptr, 0);
        pids_[rank] = -1;
    }
    // At the address of its previous life.
    void start(std::uint32_t rank) {
        fork_one(rank, at(rank).uri);
        await(rank, RankBoard::joined);
    }
    // The process is stopped when this returns.
    void stop(std::uint32_t rank) const {
        ::kill(pids_[rank], SIGSTOP);
        int state = 0;
        REQUIRE(::waitpid(pids_[rank], &state, WUNTRACED) == pids_[rank]);
        REQUIRE(WIFSTOPPED(state));
    }
    void go_on(std::uint32_t rank) const { ::kill(pids_[rank], SIGCONT); }

    // Its handlers reply to broadcasts up to this one.
    void open(std::uint32_t rank, std::uint32_t broadcast) {
        at(rank).gate = broadcast;
        RankBoard::set(at(rank).moved, at(rank).moved + 1);
    }
    int ran(std::uint32_t rank, std::uint32_t broadcast) { return at(rank).ran[broadcast]; }
    std::string address(std::uint32_t rank) { return at(rank).uri; }
    const GroupView& view() const { return *view_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(pids_.size()); }

  private:
    RankBoard& at(std::uint32_t rank) { return board_->ranks[rank]; }

    void fork_one(std::uint32_t rank, const std::string& uri) {
        at(rank).phase = RankBoard::starting;
        pids_[rank] = ::fork();
        REQUIRE(pids_[rank] >= 0);
        if (pids_[rank] != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        close_descriptors();  // Descriptors of the client.
        for (const int sig : {SIGABRT, SIGTERM, SIGINT, SIGSEGV}) ::signal(sig, SIG_DFL);
        RankServer(*board_, rank).serve(uri);
    }
    void await(std::uint32_t rank, std::uint32_t phase) {
        const TimePoint end = std::chrono::steady_clock::now() + test_timeout;
        for (std::uint32_t now = at(rank).phase; now < phase; now = at(rank).phase) {
            REQUIRE(std::chrono::steady_clock::now() < end);
            RankBoard::wait(at(rank).phase, now);
        }
        INFO("rank " << rank);
        REQUIRE(at(rank).phase != RankBoard::failed);
    }

    GroupBoard* const board_ = static_cast<GroupBoard*>(::mmap(
        nullptr, sizeof(GroupBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::vector<pid_t> pids_;
    std::optional<GroupView> view_;
};

}  // namespace weft::test
