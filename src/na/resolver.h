// Which address a host name stands for, asked once for all who want to know at the same time.
//
// The system's resolver blocks for seconds: each question has a thread of its own. What failed is
// remembered for a while, so that connecting again and again does not ask again and again; what was
// found is not, since nobody here knows for how long it holds.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <weft/function.h>
#include <weft/time.h>

#include "na/socket_name.h"

namespace weft::na {

class Resolver {
  public:
    struct Answer {
        SocketName name;    // Of port 0. Empty: there is none,
        std::string error;  // and why.
    };
    // One question. Lifetime: its own; who drops it abandons the answer, not the thread.
    struct Question {
        Answer answer;
        std::atomic<bool> done{false};  // Publishes the answer.
    };

    static constexpr Duration failure_kept_default = 1s;

    // `look_up(host)` may block; runs on threads of its own, several at once, which may outlive
    // this.
    explicit Resolver(Answer (*look_up)(const std::string& host),
                      Duration failure_kept = failure_kept_default)
        : look_up_(look_up), failure_kept_(failure_kept) {}

    // Of this process; asks the system.
    static Resolver& system();

    // Thread: any. Times may be of several clocks a little apart.
    std::shared_ptr<const Question> ask(const std::string& host, TimePoint now);
    // The same, whatever was asked before.
    std::shared_ptr<const Question> ask_anew(const std::string& host) const;
    // Questions that are open, or whose failure is remembered.
    std::size_t size(TimePoint now);

  private:
    struct Entry {
        std::shared_ptr<Question> question;
        bool is_answered = false;  // As somebody found at
        TimePoint found_at{};      // this time.
    };

    bool is_of_use(Entry& entry, TimePoint now) const;
    void drop_useless(TimePoint now);
    // False: it is answered already, for lack of a thread.
    bool start(const std::string& host, const std::shared_ptr<Question>& question) const;

    Answer (*const look_up_)(const std::string& host);
    const Duration failure_kept_;
    std::mutex mutex_;
    std::map<std::string, Entry> entries_;
};

}  // namespace weft::na
