package explain

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/refusal"
)

// WriteText writes an explanation for people to read, with the broken rules before the others. Text of requesters is escaped and shortened.
func (x *Explanation) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, refusal.Text(value))
		}
	}
	r := x.Request
	line("request", r.Metadata.Name)
	line("message", x.Message)
	line("node", x.NodeName)
	line("signer", x.Signer)
	line("requester", r.User.Username)
	line("filed", r.Metadata.CreationTimestamp.UTC().Format(time.RFC3339))
	if x.Reading != nil {
		line("machine", string(x.Reading.Machine))
		line("evidence", x.Reading.Provider+", road "+x.Reading.Road.String())
		line("cluster", x.Reading.ClusterID)
	}
	if d := x.Decision; d == nil {
		line("decision", "none yet")
	} else {
		line("decision", d.Type+", "+d.Reason)
		if d.Reason != attest.ReasonChallenge {
			line("", d.Message)
		}
	}
	for _, note := range x.Notes {
		line("event", note)
	}
	if len(x.Notes) != 0 {
		line("", "(any node can write such an Event: compare it with the controller's log)")
	}
	if len(x.Rules) != 0 {
		fmt.Fprintln(t)
	}
	for _, rule := range x.brokenFirst() {
		fmt.Fprintf(t, "%s\t%s%s\n", rule.State, rule.Name, rule.gotAndWant())
	}
	fmt.Fprintf(t, "\nnext\t%s: %s\n", x.Next.Who, refusal.Escape(x.Next.What))
	return t.Flush()
}

// brokenFirst returns the rules in the order in which they are tried, but the broken ones first.
func (x *Explanation) brokenFirst() []Rule {
	rules := slices.Clone(x.Rules)
	slices.SortStableFunc(rules, func(a, b Rule) int {
		switch {
		case a.State == Broken && b.State != Broken:
			return -1
		case a.State != Broken && b.State == Broken:
			return 1
		}
		return 0
	})
	return rules
}

func (r *Rule) gotAndWant() string {
	switch {
	case r.State == Unknown && r.Want != "":
		return ": " + refusal.Text(r.Want)
	case r.Got != "" && r.Want != "":
		return ": got " + refusal.Text(r.Got) + ", want " + refusal.Text(r.Want)
	case r.Got != "":
		return ": got " + refusal.Text(r.Got)
	case r.Want != "":
		return ": want " + refusal.Text(r.Want)
	}
	return ""
}
