/* SPDX-License-Identifier: Apache-2.0
 * status.c - the sentence for each status. */
#include "deltawire/deltawire.h"

const char *dw_version(void)
{
    return DW_VERSION_STRING;
}

const char *dw_status_string(dw_status status)
{
    switch (status) {
    case DW_OK: return "success";
    case DW_PENDING: return "not yet: call again later";
    case DW_ERR_ARGUMENT: return "an argument is NULL, empty or contradicts another";
    case DW_ERR_CONFIG: return "the configuration names an unknown word or a value out of range";
    case DW_ERR_NO_MEMORY: return "out of memory";
    case DW_ERR_BUFFER_TOO_SMALL: return "the buffer is too small";
    case DW_ERR_UNSUPPORTED: return "this build or machine cannot do that";
    case DW_ERR_LIMIT: return "a size exceeds its limit";
    case DW_ERR_FORMAT: return "not a deltawire frame, or one cut short";
    case DW_ERR_VERSION: return "written in another version of the format";
    case DW_ERR_CORRUPT: return "a checksum does not match: the bytes were changed on the way";
    case DW_ERR_SHAPE: return "the frame and the tensor have different shapes";
    case DW_ERR_MISMATCH: return "the peer has another configuration";
    case DW_ERR_IO: return "a file or the operating system failed";
    case DW_ERR_STALE: return "a duplicate, or older than the frame that was already applied";
    case DW_ERR_BASE:
        return "the change starts from a state that is not held here: a reply makes the encoder "
               "send a "
               "key frame";
    case DW_ERR_STATE:
        return "the reconstruction differs from the sender's: a reply makes the encoder send a key "
               "frame";
    case DW_ERR_TIMEOUT: return "the peer did not answer in time";
    case DW_ERR_PEER: return "the peer closed the link or died";
    case DW_ERR_ADDRESS: return "the address cannot be resolved, bound or reached";
    case DW_ERR_CANCELLED: return "the link was cancelled";
    case DW_ERR_PROTOCOL: return "the peer does not speak the deltawire protocol";
    case DW_ERR_AUTH:
        return "authentication failed: the peer is not the one expected, or it rejected our "
               "identity";
    }
    return "unknown status";
}
