package ec2

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestParseCaller: only a session of a role is an instance.
func TestParseCaller(t *testing.T) {
	for arn, want := range map[string]*caller{
		"arn:aws:sts::123456789012:assumed-role/node/i-0123456789abcdef0":            {"aws", "123456789012", "node", "i-0123456789abcdef0"},
		"arn:aws-us-gov:sts::123456789012:assumed-role/a_b+c=d,e.f@g-h/i-01234567":   {"aws-us-gov", "123456789012", "a_b+c=d,e.f@g-h", "i-01234567"},
		"arn:aws:sts::123456789012:assumed-role/node":                                nil,
		"arn:aws:sts::123456789012:assumed-role/node/":                               nil,
		"arn:aws:sts::123456789012:assumed-role//i-0123456789abcdef0":                nil,
		"arn:aws:sts::123456789012:assumed-role/path/node/i-0123456789abcdef0":       nil,
		"arn:aws:sts::123456789012:assumed-role/node/i-0123456789abcdef0/x":          nil,
		"arn:aws:sts::123456789012:assumed-role/node/i-0123456789abcdef0\n":          nil,
		" arn:aws:sts::123456789012:assumed-role/node/i-0123456789abcdef0":           nil,
		"arn:aws:sts::12345678901:assumed-role/node/i-0123456789abcdef0":             nil,
		"arn:aws:sts:us-east-2:123456789012:assumed-role/node/i-0123456789abcdef0":   nil,
		"arn:aws:iam::123456789012:assumed-role/node/i-0123456789abcdef0":            nil,
		"arn:aws:iam::123456789012:user/node":                                        nil,
		"arn:aws:iam::123456789012:root":                                             nil,
		"arn:aws:sts::123456789012:federated-user/i-0123456789abcdef0":               nil,
		"arn:aws:sts::123456789012:Assumed-Role/node/i-0123456789abcdef0":            nil,
		"arn::sts::123456789012:assumed-role/node/i-0123456789abcdef0":               nil,
		"arn:aws:sts::123456789012:assumed-role/" + strings.Repeat("a", 65) + "/i-1": nil,
		"": nil,
	} {
		got, err := parseCaller(arn)
		if (err == nil) != (want != nil) || want != nil && *got != *want || err != nil && !errors.Is(err, checkARN) {
			t.Errorf("%q: %+v, %v", arn, got, err)
		}
	}
}

// TestParseAnswer: an answer has one form. Another one says nothing about the node.
func TestParseAnswer(t *testing.T) {
	const arn = "arn:aws:sts::123456789012:assumed-role/node/i-0123456789abcdef0"
	right := good(arn)
	replace := func(old, by string) string {
		if !strings.Contains(right, old) {
			panic(old)
		}
		return strings.Replace(right, old, by, 1)
	}
	result := right[strings.Index(right, "<GetCallerIdentityResult>"):strings.Index(right, "<ResponseMetadata>")]
	another := "<Arn>" + strings.Replace(arn, "i-0", "i-1", 1) + "</Arn>"
	for name, c := range map[string]struct {
		text string
		want refusal.Check
	}{
		"good":                         {right, ""},
		"with a declaration":           {`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + right, ""},
		"without spaces":               {strings.NewReplacer("\n", "", "  ", "").Replace(right), ""},
		"with an escape":               {replace("<Arn>arn", "<Arn>&#97;rn"), ""},
		"without metadata":             {right[:strings.Index(right, "<ResponseMetadata>")] + "</GetCallerIdentityResponse>", ""},
		"two results":                  {replace(result, result+result), checkAnswer},
		"two results, of two machines": {replace(result, result+strings.Replace(result, "i-0", "i-1", 2)), checkAnswer},
		"two ARNs":                     {replace("<Arn>", another+"<Arn>"), checkAnswer},
		"two answers":                  {right + right, checkAnswer},
		"an ARN in an ARN":             {replace("<Arn>", "<Arn>"+another), checkAnswer},
		"an ARN in the metadata":       {replace("<RequestId>", another+"<RequestId>"), checkAnswer},
		"an ARN outside of the result": {replace("<GetCallerIdentityResult>", another+"<GetCallerIdentityResult>"), checkAnswer},
		"no ARN":                       {replace("<Arn>"+arn+"</Arn>", ""), checkAnswer},
		"an empty ARN":                 {replace("<Arn>"+arn+"</Arn>", "<Arn/>"), checkARN},
		"an ARN in pieces":             {replace("<Arn>arn", "<Arn>a<![CDATA[r]]>n"), checkAnswer},
		"an ARN with a comment":        {replace("<Arn>arn", "<Arn>a<!-- -->rn"), checkAnswer},
		"an ARN with spaces":           {replace("<Arn>arn", "<Arn> arn"), checkARN},
		"an ARN next to an element":    {replace("<Arn>"+arn, "<Arn>"+arn+"<x xmlns=\""+namespace+"\"/>"), checkAnswer},
		"another's account":            {replace("<Account>1", "<Account>2"), checkAnswer},
		"no account":                   {replace("<Account>123456789012</Account>", ""), checkAnswer},
		"text between":                 {replace("<Arn>", "x<Arn>"), checkAnswer},
		"text behind":                  {right + "x", checkAnswer},
		"text before":                  {"x" + right, checkAnswer},
		"a comment":                    {replace("<Arn>", "<!-- --><Arn>"), checkAnswer},
		"a document type":              {`<!DOCTYPE x [<!ENTITY e "arn">]>` + right, checkAnswer},
		"an unknown entity":            {replace("<Arn>arn", "<Arn>&arn;"), checkAnswer},
		"a late declaration":           {right + `<?xml version="1.0"?>`, checkAnswer},
		"another instruction":          {`<?x y?>` + right, checkAnswer},
		"an attribute":                 {replace("<Arn>", `<Arn x="y">`), checkAnswer},
		"a prefix":                     {strings.NewReplacer("<Arn>", `<a:Arn xmlns:a="`+namespace+`">`, "</Arn>", "</a:Arn>").Replace(right), checkAnswer},
		"another namespace":            {replace(namespace, "https://sts.amazonaws.com/doc/2010-05-08/"), checkAnswer},
		"no namespace":                 {replace(` xmlns="`+namespace+`"`, ""), checkAnswer},
		"an element of another's":      {replace("<Arn>", `<Arn xmlns="x">`), checkAnswer},
		"an unknown element":           {replace("<Arn>", "<X/><Arn>"), checkAnswer},
		"deep":                         {replace("<RequestId>", strings.Repeat("<X>", 1000)+strings.Repeat("</X>", 1000)+"<RequestId>"), checkAnswer},
		"in capitals":                  {strings.ToUpper(right), checkAnswer},
		"of another action":            {strings.ReplaceAll(right, "GetCallerIdentity", "AssumeRole"), checkAnswer},
		"in Latin-1":                   {`<?xml version="1.0" encoding="ISO-8859-1"?>` + right, checkAnswer},
		"not UTF-8":                    {replace("AROAEXAMPLE", "\xff"), checkAnswer},
		"cut":                          {right[:len(right)-5], checkAnswer},
		"empty":                        {"", checkAnswer},
		"a refusal":                    {fault("AccessDenied"), checkAnswer},
		"a user":                       {good("arn:aws:iam::123456789012:user/i-0123456789abcdef0"), checkARN},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseAnswer([]byte(c.text))
			if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, c.want) || errors.Is(err, refusal.ErrRetry) != (c.want == checkAnswer)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err == nil && *got != (caller{"aws", "123456789012", "node", "i-0123456789abcdef0"}) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if code, ok := parseFault([]byte(fault("AccessDenied"))); code != "AccessDenied" || !ok {
		t.Errorf("%q, %v", code, ok)
	}
}
