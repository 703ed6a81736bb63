// Which addresses a host name stands for, asked once for all who want to know at the same time.
//
// The system's resolver blocks for seconds, so questions are asked on a few threads, which exist
// while questions wait. Host names that peers named have a share of the threads and a short queue
// of their own: however many a peer invents, the program's own questions are asked. What failed is
// remembered for a while, so that connecting again and again does not ask again and again; what was
// found is not, since nothing here says for how long it holds.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <weft/function.h>
#include <weft/status.h>
#include <weft/time.h>

#include "na/socket_name.h"

namespace weft::na {

class Resolver {
  public:
    struct Answer {
        std::vector<SocketName> names;  // Of port 0, in the order to try. Empty: there is none,
        std::string error;              // and why,
        Code code = Code::unavailable;  // as this. RESOURCE_EXHAUSTED: of a limit of this process.
    };
    // One question. Lifetime: its own; one that is dropped everywhere before a thread takes it is
    // not asked.
    struct Question {
        Answer answer;
        std::atomic<bool> done{false};  // Publishes the answer.
    };
    // Where the host name comes from.
    enum class Origin : std::uint8_t { program, peer };

    static constexpr Duration failure_kept_default = 1s;
    static constexpr unsigned threads_max = 8;
    static constexpr std::size_t names_max = 16;         // Of an answer.
    static constexpr std::size_t waiting_max = 1 << 16;  // As many as a runtime has peers.
    // Of these for host names that peers named.
    static constexpr unsigned peer_threads_max = 2;
    static constexpr std::size_t peer_waiting_max = 64;

    // `look_up(host)` may block; runs on threads of its own, several at once, which may outlive
    // this.
    explicit Resolver(Answer (*look_up)(const std::string& host),
                      Duration failure_kept = failure_kept_default);

    // Of this process; asks the system.
    static Resolver& system();

    // Thread: any. Times may be of several clocks a little apart. A question that finds no thread
    // or no room is answered at once, with RESOURCE_EXHAUSTED.
    std::shared_ptr<const Question> ask(const std::string& host, TimePoint now,
                                        Origin origin = Origin::program);
    // The same of the program, whatever was asked before.
    std::shared_ptr<const Question> ask_anew(const std::string& host);
    // Questions that are open, or whose failure is remembered.
    std::size_t size(TimePoint now);
    // Thread: any.
    unsigned threads() const;

  private:
    struct State;

    const std::shared_ptr<State> state_;  // Shared with the threads.
};

}  // namespace weft::na
