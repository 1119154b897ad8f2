package jws

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// unstatedAge is for how long a response may be kept that does not say it.
const unstatedAge = 5 * time.Minute

// maxAge returns for how long a response may be kept: the max-age of Cache-Control less
// its Age (RFC 9111, sections 4.2 and 5.2.2.1). Not at all with no-store, no-cache or a
// max-age that cannot be read; the shortest of several. Other directives and Expires are
// not read.
func maxAge(header http.Header) time.Duration {
	lifetime := time.Duration(-1)
	for _, line := range header.Values("Cache-Control") {
		for directive := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.ToLower(name) {
			case "no-store", "no-cache":
				return 0
			case "max-age":
				stated := seconds(strings.Trim(value, `"`))
				if lifetime < 0 || stated < lifetime {
					lifetime = stated
				}
			}
		}
	}
	if lifetime < 0 {
		return unstatedAge
	}
	return max(lifetime-seconds(header.Get("Age")), 0)
}

// seconds reads delta-seconds (RFC 9111, section 1.2.2): 0 where it cannot be read, and
// 2^31 for more.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil && n != math.MaxUint64 {
		return 0
	}
	return time.Duration(min(n, 1<<31)) * time.Second
}
