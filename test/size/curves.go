package main

import (
	"fmt"
	"math"
	"strings"
)

// The picture has three panels in a row, each with its axes inside.
const (
	panelWidth, panelHeight  = 316, 196
	plotLeft, plotTop        = 48, 40
	plotWidth, plotHeight    = 248, 118
	columns                  = 3
	pictureWidth, headHeight = columns*panelWidth + 12, 34
)

// curve is one line of a panel.
type curve struct{ phase, way string }

// panels are the figures that are drawn, with the phases of each.
var panels = []struct {
	figure
	phases []string
}{
	{figure{name: "seconds until all have joined", of: figSeconds.of}, []string{phaseJoin}},
	{figure{name: "seconds until all have renewed, after an outage", of: figSeconds.of}, []string{phaseStorm}},
	{figRequests, []string{phaseJoin}},
	{figServer, []string{phaseJoin, phaseRenew}},
	{figMemory, []string{phaseJoin, phaseRenew}},
	{figOurMB, []string{phaseJoin, phaseRenew}},
	{figOurs, []string{phaseJoin, phaseRenew}},
	{figWrites, []string{phaseJoin, phaseRenew}},
	{figBytes, []string{phaseJoin, phaseRenew}},
}

// style is for light and dark pages.
const style = `<style>
svg{--ink:#24292f;--faint:#d0d7de;--attested:#0969da;--plain:#bc4c00;background:#fff}
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--faint:#444c56;--attested:#58a6ff;--plain:#ffa657;background:#0d1117}}
text{fill:var(--ink)}.axis{stroke:var(--faint)}path{fill:none;stroke-width:2}
.attested{stroke:var(--attested)}.plain{stroke:var(--plain)}circle.attested{fill:var(--attested)}circle.plain{fill:var(--plain)}
.join,.storm{stroke-dasharray:none}.renew{stroke-dasharray:5 4}
</style>
`

// curves is the picture, as SVG.
func (m measurements) curves(machine string) string {
	rows := (len(panels) + columns - 1) / columns
	var out strings.Builder
	out.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" font-family="Helvetica, Arial, sans-serif" font-size="11" `)
	fmt.Fprintf(&out, "viewBox=\"0 0 %d %d\">\n", pictureWidth, headHeight+rows*panelHeight)
	out.WriteString("<!-- go run -C test/size . writes this file -->\n" + style)
	for i, c := range []struct {
		curve
		text string
	}{
		{curve{phaseJoin, attested}, "attested"},
		{curve{phaseJoin, plain}, "plain kubelet TLS bootstrap"},
		{curve{phaseRenew, attested}, "dashed: renewals"},
	} {
		x := 16 + 220*i
		fmt.Fprintf(&out, `<path class="%s %s" d="M%d 18h28"/><text x="%d" y="22">%s</text>`+"\n", c.way, c.phase, x, x+36, c.text)
	}
	fmt.Fprintf(&out, `<text x="%d" y="22" text-anchor="end">%s</text>`+"\n", pictureWidth-16, escape(machine))
	for i := range panels {
		fmt.Fprintf(&out, `<g transform="translate(%d %d)">`+"\n", i%columns*panelWidth+6, headHeight+i/columns*panelHeight)
		m.panel(&out, i)
		out.WriteString("</g>\n")
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// panel draws a figure against the number of nodes, which has a logarithmic axis.
func (m measurements) panel(out *strings.Builder, i int) {
	p, sizes := &panels[i], m.sizes()
	fmt.Fprintf(out, `<text x="8" y="18" font-weight="bold">%s</text>`+"\n", escape(p.name))
	most := 0.0
	for _, phase := range p.phases {
		for _, of := range m[phase] {
			for _, r := range of {
				most = max(most, p.of(r))
			}
		}
	}
	top := rounded(most)
	y := func(v float64) float64 { return plotTop + plotHeight*(1-v/top) }
	x := func(nodes int) float64 {
		if len(sizes) == 1 {
			return plotLeft
		}
		first, last := math.Log(float64(sizes[0])), math.Log(float64(sizes[len(sizes)-1]))
		return plotLeft + plotWidth*(math.Log(float64(nodes))-first)/(last-first)
	}
	for _, tick := range []float64{0, 0.5, 1} {
		at := y(top * tick)
		fmt.Fprintf(out, `<path class="axis" d="M%d %.1fh%d"/>`, plotLeft, at, plotWidth)
		fmt.Fprintf(out, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft-5, at+4, number(top*tick))
	}
	for _, n := range sizes {
		fmt.Fprintf(out, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(n), plotTop+plotHeight+16, grouped(n))
	}
	for _, phase := range p.phases {
		for _, way := range []string{plain, attested} {
			if p.alone && way == plain {
				continue
			}
			var line strings.Builder
			for _, n := range sizes {
				r := m[phase][way][n]
				if r == nil {
					continue
				}
				fmt.Fprintf(&line, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[line.Len() == 0], x(n), y(p.of(r)))
				fmt.Fprintf(out, `<circle class="%s" cx="%.1f" cy="%.1f" r="2.5"/>`+"\n", way, x(n), y(p.of(r)))
			}
			if line.Len() != 0 {
				fmt.Fprintf(out, `<path class="%s %s" d="%s"/>`+"\n", way, phase, &line)
			}
		}
	}
}

// rounded is the smallest of 1, 2, 4, 6, 8 times a power of ten that is at least v.
func rounded(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 2, 4, 6, 8} {
		if digit*power >= v {
			return digit * power
		}
	}
	return 10 * power
}

func escape(text string) string { return strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(text) }
