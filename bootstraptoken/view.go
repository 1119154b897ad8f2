package bootstraptoken

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// View writes tokens as `kubeadm token list` does. The zero View hides the tokens'
// secrets, where kubeadm shows them.
type View struct {
	// InsecureShowSecrets writes whole tokens. Whoever reads the output, the terminal's
	// scrollback and the log of a build job among them, can join the cluster.
	InsecureShowSecrets bool
}

func (v View) token(s *Secret) string {
	if v.InsecureShowSecrets {
		return s.Token.Reveal()
	}
	return s.Token.String()
}

// names returns the usages in the words of the Secret's keys, sorted.
func (u Usages) names() (names []string) {
	if u.Authentication {
		names = append(names, "authentication")
	}
	if u.Signing {
		names = append(names, "signing")
	}
	return names
}

// Table returns what `kubeadm token list` prints (cmd/kubeadm/app/cmd/token.go,
// formatBootstrapToken): a header and a line for each secret, or nothing for none, with
// the columns TOKEN, TTL, EXPIRES, USAGES, DESCRIPTION and EXTRA GROUPS. The time to live
// is the one at now; "<invalid>" is an expired token, "<forever>" and "<never>" one
// without expiration, "<none>" what is not set.
//
// For one secret it is kubeadm's text byte for byte, but for its token unless secrets are
// shown. For several the columns stand below each other, where kubeadm aligns each line
// for itself. A character of the description that does not print, such as a line break or
// a terminal's escape, is written as Go writes it in a quoted string.
func (v View) Table(secrets []*Secret, now time.Time) string {
	if len(secrets) == 0 {
		return ""
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 10, 4, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
	for _, s := range secrets {
		ttl, expires := "<forever>", "<never>"
		if !s.Expiration.IsZero() {
			ttl, expires = shortDuration(s.Expiration.Sub(now)), s.Expiration.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%s\t%-9s\t%s\t%-22s\t%-56s\t%s\n", v.token(s), ttl, expires,
			orNone(strings.Join(s.Usages.names(), ",")), orNone(refusal.Escape(s.Description)), orNone(strings.Join(s.Groups, ",")))
	}
	_ = w.Flush() // neither can fail: a strings.Builder takes everything
	return out.String()
}

// shortDuration writes the largest unit that is not zero
// (k8s.io/apimachinery/pkg/util/duration, ShortHumanDuration).
func shortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= -2*time.Second:
		return "<invalid>"
	case d < 0:
		return "0s"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < day:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	case d < 365*day:
		return strconv.Itoa(int(d/day)) + "d"
	}
	return strconv.Itoa(int(d/(365*day))) + "y"
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
