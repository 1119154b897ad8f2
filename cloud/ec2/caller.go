package ec2

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/nodeattest/nodeattest/refusal"
)

// Checks on the signer of a request, in STS' answer.
const (
	// checkAnswer: the answer is not one result of GetCallerIdentity.
	checkAnswer refusal.Check = "ec2-sts-answer"
	// checkARN: the signer is not a session of a role.
	checkARN refusal.Check = "ec2-arn"
)

// caller is a session of a role: arn:<partition>:sts::<account>:assumed-role/<role>/<session>.
type caller struct{ partition, account, role, session string }

// Names of roles and sessions, and of partitions and accounts (IAM and STS API references).
const (
	namePattern = `[A-Za-z0-9_+=,.@-]{1,64}`
	ownerOfARN  = `^arn:(aws(?:-[a-z]{1,8}){0,2}):`
)

// They are compiled when they are first used, for the sake of programs that never do.
var (
	callerPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(ownerOfARN + `sts::([0-9]{12}):assumed-role/(` + namePattern + `)/(` + namePattern + `)$`)
	})
	rolePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(ownerOfARN + `iam::([0-9]{12}):role/(?:[!-~]{1,510}/)?(` + namePattern + `)$`)
	})
)

// parseCaller reads the ARN in an answer.
func parseCaller(arn string) (*caller, error) {
	m := callerPattern().FindStringSubmatch(arn)
	if m == nil {
		return nil, checkARN.Refuse(refusal.Quote(arn), "arn:<partition>:sts::<account>:assumed-role/<role>/<session>")
	}
	return &caller{m[1], m[2], m[3], m[4]}, nil
}

// parseRole reads a role's ARN, arn:<partition>:iam::<account>:role/<path and name>. Sessions do not
// show the path, and an account has a name once.
func parseRole(arn string) (*caller, bool) {
	m := rolePattern().FindStringSubmatch(arn)
	if m == nil {
		return nil, false
	}
	return &caller{partition: m[1], account: m[2], role: m[3]}, true
}

// namespace is that of all elements in STS' answers.
const namespace = "https://sts.amazonaws.com/doc/2011-06-15/"

// maxDepth is the depth of the deepest element in an answer.
const maxDepth = 3

// maxElements bounds the elements of an answer, each of which costs a little. STS has seven.
const maxElements = 32

var errAnswer = errors.New("malformed answer of STS: want one result, with known elements of its namespace, each once")

// parseAnswer reads the answer to GetCallerIdentity: one result, in elements that are known, of
// STS' namespace, each once. A malformed answer says nothing about the node: the error matches
// [refusal.ErrRetry].
func parseAnswer(data []byte) (*caller, error) {
	const result = "GetCallerIdentityResponse/GetCallerIdentityResult"
	texts, err := readXML(data)
	for name := range texts {
		switch name {
		case "GetCallerIdentityResponse", result, result + "/Arn", result + "/UserId", result + "/Account",
			"GetCallerIdentityResponse/ResponseMetadata", "GetCallerIdentityResponse/ResponseMetadata/RequestId":
		default:
			err = errAnswer
		}
	}
	arn, there := texts[result+"/Arn"]
	if err != nil || !there {
		return nil, unread(checkAnswer, "an answer that cannot be read", "one result of GetCallerIdentity", cmp.Or(err, errAnswer))
	}
	c, err := parseCaller(arn)
	if err != nil {
		return nil, err
	}
	if account := texts[result+"/Account"]; account != c.account {
		return nil, unread(checkAnswer, "account "+refusal.Quote(account), "that of the ARN, "+c.account, errAnswer)
	}
	return c, nil
}

// parseFault reads STS' error response, and returns its code.
func parseFault(data []byte) (code string, ok bool) {
	texts, err := readXML(data)
	code = texts["ErrorResponse/Error/Code"]
	return code, err == nil && code != "" && len(code) <= 64
}

// readXML reads a document of one element in which no element is there twice, and returns the
// elements by their paths, such as a/b, with the text of leaf elements. Text stands in
// leaves, in one piece, and nowhere else; attributes other than xmlns, comments and directives are refused.
func readXML(data []byte) (map[string]string, error) {
	d := &xmlDocument{texts: map[string]string{}}
	decoder := xml.NewDecoder(bytes.NewReader(data))
	for {
		next, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(d.texts) > 0 && len(d.path) == 0 {
			return d.texts, nil
		}
		if err != nil {
			return nil, err
		}
		if !d.read(next) {
			return nil, errAnswer
		}
	}
}

// xmlDocument is a document as far as it was read.
type xmlDocument struct {
	texts map[string]string // by path
	path  []string          // of the element that is open
	text  string            // since the last tag
	leaf  bool              // the last tag opened an element
}

// read reads the next token, and reports whether it may stand there.
func (d *xmlDocument) read(next xml.Token) bool {
	switch e := next.(type) {
	case xml.StartElement:
		return d.open(e)
	case xml.EndElement:
		return d.end()
	case xml.CharData:
		first := d.text == ""
		d.text = string(e)
		return first && (len(d.path) > 0 || d.blank())
	case xml.ProcInst:
		return e.Target == "xml" && len(d.texts) == 0
	}
	return false
}

func (d *xmlDocument) blank() bool { return strings.TrimSpace(d.text) == "" }

func (d *xmlDocument) open(e xml.StartElement) bool {
	if !d.blank() || e.Name.Space != namespace || !onlyNamespace(e.Attr) {
		return false
	}
	second := len(d.path) == 0 && len(d.texts) > 0
	d.path = append(d.path, e.Name.Local)
	name := strings.Join(d.path, "/")
	if _, twice := d.texts[name]; twice || second || len(d.path) > maxDepth || len(d.texts) == maxElements {
		return false
	}
	d.texts[name], d.text, d.leaf = "", "", true
	return true
}

func (d *xmlDocument) end() bool {
	if d.leaf {
		d.texts[strings.Join(d.path, "/")] = d.text
	} else if !d.blank() {
		return false
	}
	d.path, d.text, d.leaf = d.path[:len(d.path)-1], "", false
	return true
}

func onlyNamespace(attributes []xml.Attr) bool {
	return len(attributes) == 0 || len(attributes) == 1 && attributes[0].Name == xml.Name{Local: "xmlns"}
}
