package kubectl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// staticSuffix ends the names of objects that kube-apiserver reads from its disk (Kubernetes'
	// manifest-based admission control, KEP-5793). No request can make an object of such a name.
	staticSuffix = ".static.k8s.io"
	// parameters is the variable that has the place of a static policy's parameter: such a policy has none.
	parameters = "parameters"
)

// manifestSet is the part of rendered manifests that static policies are made of.
type manifestSet struct {
	policies   []admissionregistrationv1.ValidatingAdmissionPolicy
	bindings   []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	configMaps []corev1.ConfigMap
}

// staticPolicies prints the admission policies that refuse, and the bindings by which they do, as files that
// kube-apiserver reads from its disk. It takes the rendered manifests of a cluster.
func (p *plugin) staticPolicies(_ context.Context, names []string) error {
	var set manifestSet
	for _, name := range names {
		text, err := p.read(name, maxObjects)
		if err == nil {
			err = set.add(text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	documents, err := set.static()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.WriteString("# Made by kubectl nodeattest static-policies, for the folder staticManifestsDir of kube-apiserver.\n")
	for i, document := range documents {
		text, err := yaml.Marshal(document)
		if err != nil {
			return err
		}
		if i > 0 { // kube-apiserver refuses a document that is a comment
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	_, err = p.out.Write(out.Bytes())
	return err
}

// add reads the documents of a file. Objects of other kinds are left out.
func (s *manifestSet) add(text []byte) error {
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			document, err = configfile.JSON(document)
		}
		var is metav1.PartialObjectMetadata
		if err == nil {
			err = json.Unmarshal(document, &is)
		}
		if err != nil {
			return err
		}
		switch is.APIVersion + " " + is.Kind {
		case "v1 ConfigMap":
			s.configMaps, err = appendObject(s.configMaps, document)
		case "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy":
			s.policies, err = appendObject(s.policies, document)
		case "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding":
			s.bindings, err = appendObject(s.bindings, document)
		default:
			if strings.HasPrefix(is.APIVersion, admissionregistrationv1.GroupName+"/") && strings.HasPrefix(is.Kind, "ValidatingAdmissionPolicy") {
				err = fmt.Errorf("version %s, which would be left out: give it in version v1", refusal.Quote(is.APIVersion))
			}
		}
		if strings.HasSuffix(is.Kind, "List") {
			err = errors.New("a list, where single objects are expected, as kubectl kustomize prints them")
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", is.Kind, refusal.Text(is.Name), err)
		}
	}
}

func appendObject[T any](objects []T, document []byte) ([]T, error) {
	var object T
	err := yaml.UnmarshalStrict(document, &object)
	return append(objects, object), err
}

// staticObject is a policy or binding, with the members of a file on the API server's disk.
type staticObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        staticName `json:"metadata"`
	Spec            any        `json:"spec"`
}

type staticName struct {
	Name string `json:"name"`
}

// static returns the bindings that deny and their policies, each under its static name.
func (s *manifestSet) static() (documents []staticObject, err error) {
	parameterOf := map[string]string{} // by policy; "" of one that has none
	for i := range s.bindings {
		binding := &s.bindings[i]
		if !slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
			continue
		}
		name, parameter := binding.Spec.PolicyName, ""
		if ref := binding.Spec.ParamRef; ref != nil {
			parameter = ref.Namespace + "/" + ref.Name
		}
		switch before, known := parameterOf[name]; {
		case !known:
			policy, err := s.inlined(name, binding.Spec.ParamRef)
			if err != nil {
				return nil, fmt.Errorf("ValidatingAdmissionPolicy %s: %w", refusal.Text(name), err)
			}
			documents = append(documents, staticObject{policy.TypeMeta, staticName{name + staticSuffix}, policy.Spec})
			parameterOf[name] = parameter
		case before != parameter:
			return nil, fmt.Errorf("ValidatingAdmissionPolicy %s: its bindings have the parameters %s and %s; a static policy has one text",
				refusal.Text(name), refusal.OrNothing(before), refusal.OrNothing(parameter))
		}
		spec := binding.Spec
		spec.PolicyName, spec.ParamRef = name+staticSuffix, nil
		documents = append(documents, staticObject{binding.TypeMeta, staticName{binding.Name + staticSuffix}, spec})
	}
	if len(documents) == 0 {
		return nil, errors.New("no ValidatingAdmissionPolicyBinding denies: give the rendered manifests with the component enforce")
	}
	return documents, nil
}

// inlined returns the policy of a name, with the data of its parameter in its text.
func (s *manifestSet) inlined(name string, ref *admissionregistrationv1.ParamRef) (*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	var found []*admissionregistrationv1.ValidatingAdmissionPolicy
	for i := range s.policies {
		if s.policies[i].Name == name {
			found = append(found, &s.policies[i])
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("the manifests have %d of this name, and a binding that denies needs one", len(found))
	}
	policy := found[0].DeepCopy()
	kind := policy.Spec.ParamKind
	switch {
	case kind == nil && ref == nil:
		return policy, nil
	case kind == nil || ref == nil || kind.APIVersion != "v1" || kind.Kind != "ConfigMap" || ref.Name == "" || ref.Namespace == "":
		return nil, errors.New("a static policy has no parameter, and only that of a ConfigMap with a name and a namespace can be put into its text")
	}
	data, err := s.dataOf(ref)
	if err != nil {
		return nil, err
	}
	for _, text := range textsOf(&policy.Spec) {
		*text = strings.ReplaceAll(*text, "params.data", "variables."+parameters)
	}
	for _, text := range append(textsOf(&policy.Spec), matchTexts(&policy.Spec)...) {
		if param.MatchString(*text) {
			return nil, fmt.Errorf("%s uses the parameter in another way than as params.data in a variable or validation", refusal.Quote(*text))
		}
	}
	for _, v := range policy.Spec.Variables {
		if v.Name == parameters {
			return nil, errors.New("it has a variable " + parameters + " already")
		}
	}
	policy.Spec.ParamKind = nil
	policy.Spec.Variables = append([]admissionregistrationv1.Variable{{Name: parameters, Expression: data}}, policy.Spec.Variables...)
	return policy, nil
}

// param matches a use of a policy's parameter in CEL.
var param = regexp.MustCompile(`\bparams\b`)

// dataOf returns the data of a ConfigMap as a map in CEL, whose strings have JSON's escapes.
func (s *manifestSet) dataOf(ref *admissionregistrationv1.ParamRef) (string, error) {
	data, n := map[string]string{}, 0
	for i := range s.configMaps {
		if c := &s.configMaps[i]; c.Name == ref.Name && c.Namespace == ref.Namespace {
			n++
			maps.Copy(data, c.Data)
		}
	}
	if n != 1 {
		return "", fmt.Errorf("the manifests have %d ConfigMaps %s/%s, and its parameter is one", n, refusal.Text(ref.Namespace), refusal.Text(ref.Name))
	}
	text, err := json.Marshal(data)
	return string(text), err
}

// textsOf are the expressions of a policy that may use its variables.
func textsOf(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) (texts []*string) {
	for i := range spec.Variables {
		texts = append(texts, &spec.Variables[i].Expression)
	}
	for i := range spec.Validations {
		texts = append(texts, &spec.Validations[i].Expression, &spec.Validations[i].MessageExpression)
	}
	for i := range spec.AuditAnnotations {
		texts = append(texts, &spec.AuditAnnotations[i].ValueExpression)
	}
	return texts
}

// matchTexts are the expressions of a policy that may not.
func matchTexts(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) (texts []*string) {
	for i := range spec.MatchConditions {
		texts = append(texts, &spec.MatchConditions[i].Expression)
	}
	return texts
}
