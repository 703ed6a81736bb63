// EXPECT weft::MergedResult<Reply>
#include <weft/asio.h>

#include "merge.weft.h"

void ask(const merge::v1::MergingGroupClient& members) {
#ifdef ALLOWED
    members.Ordered({}, {}, [](const weft::MergedResult<merge::v1::Lists>&) {});
#else
    members.Ordered({}, {}, [](const weft::GroupResult<merge::v1::Lists>&) {});
#endif
}
