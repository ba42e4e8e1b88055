package alerts

// theRule is one of the rules of a scene.
func theRule(mode, samples string) string {
	return `weir_rule_info{namespace="weir",rule="login",owner="accounts",mode="` + mode + `",version="3"} ` + samples
}

const ownersLabels = "namespace=weir,rule=login,owner=accounts,mode="

func ownerDrills() []drill {
	written := `weir_enforce_decisions_total{namespace="weir",rule="login",mode="block",action="written",reason=""} `
	watched := `weir_route_rule_events_total{stream="live",namespace="weir",rule="login",outcome="matched"} `
	return []drill{
		{
			alert: "WeirShadowRuleFires", every: "5m",
			series: []string{
				theRule("shadow", "1x400"),
				`weir_detect_episodes_total{namespace="weir",stream="live",rule="login"} 0x300 4x3 8x100`,
				`weir_detect_episodes_total{namespace="weir",stream="replay",rule="login"} 0+1x400`,
				// A source has a hit for each device that it came with, and more while its episode goes on.
				`weir_detect_hits_total{namespace="weir",stream="live",rule="login",kind="hit",phase="open"} 0+7x287 2009x12 2009x0 2269+65x3 2529x100`,
				`weir_rule_info{namespace="weir",rule="burst",owner="web",mode="block",version="1"} 1x400`,
				`weir_detect_episodes_total{namespace="weir",stream="live",rule="burst"} 0x300 4x100`,
				// This one has fired all the time.
				`weir_rule_info{namespace="weir",rule="old",owner="web",mode="shadow",version="1"} 1x400`,
				`weir_detect_episodes_total{namespace="weir",stream="live",rule="old"} 0+1x400`,
			},
			quiet: "25h", fires: "25h10m", over: "26h30m",
			notices: []notice{{
				ownersLabels + "shadow", "Rule login, in shadow, begins to fire",
				"4 episodes of login began within 15 minutes, the first ones in a day. It is in shadow, so nobody is blocked.",
			}},
		},
		{
			alert: "WeirBlockRateHigh", every: "15m",
			series: []string{
				theRule("block", "1x900"), written + "0+2x768 1546+10x8 2126+500x8 6126+2x100",
				// Promoted an hour ago, so it has no usual; and one that writes too few to tell.
				`weir_rule_info{namespace="weir",rule="new",owner="web",mode="shadow",version="1"} 1x772`,
				`weir_rule_info{namespace="weir",rule="new",owner="web",mode="block",version="1"} _x773 1x100`,
				`weir_enforce_decisions_total{namespace="weir",rule="new",mode="block",action="written",reason=""} 0x773 100+100x100`,
				`weir_rule_info{namespace="weir",rule="rare",owner="web",mode="block",version="1"} 1x900`,
				`weir_enforce_decisions_total{namespace="weir",rule="rare",mode="block",action="written",reason=""} 0x773 4+4x100`,
			},
			quiet: "194h30m", fires: "195h", over: "199h",
			notices: []notice{{
				ownersLabels + "block", "Rule login blocks 181.7 times as much as usual",
				"In the last hour login wrote 181.7 times as many blocks as in its usual hour of the week, and as in the same hour a week ago.",
			}},
		},
		{
			alert: "WeirBlockRateLow", every: "15m",
			series: []string{
				theRule("block", "1x900"), written + "0+10x768 7680+1x20 7700+10x20", `weir_detect_events_total{stream="live",namespace="weir"} 0+1000x900`,
				// Here nothing is counted any more, but for a replay.
				`weir_rule_info{namespace="still",rule="login",owner="web",mode="block",version="1"} 1x900`,
				`weir_enforce_decisions_total{namespace="still",rule="login",mode="block",action="written",reason=""} 0+10x768 7680x100`,
				`weir_detect_events_total{stream="live",namespace="still"} 0+1000x764 764000x100`, `weir_detect_events_total{stream="replay",namespace="still"} 0+1000x900`,
				`weir_rule_info{namespace="weir",rule="rare",owner="web",mode="block",version="1"} 1x900`,
				`weir_enforce_decisions_total{namespace="weir",rule="rare",mode="block",action="written",reason=""} 0+4x768 3072x100`,
			},
			quiet: "193h30m", fires: "195h", over: "200h",
			notices: []notice{{
				ownersLabels + "block", "Rule login blocks less than a fifth of its usual",
				"In the last hour login wrote 10.09% of the blocks of its usual hour of the week, and of the same hour a week ago.",
			}},
		},
		{
			alert: "WeirRefusalShareHigh",
			series: []string{
				theRule("block", "1x120"),
				`weir_gate_decisions_total{namespace="weir",instance="a",decision="pass",rule=""} 0+900x120`,
				`weir_gate_decisions_total{namespace="weir",instance="a",decision="refuse",rule="login"} 0+30x30 900+100x30 3900+10x40`,
				// A namespace of few requests: a tenth of them, and few.
				`weir_rule_info{namespace="small",rule="login",owner="accounts",mode="block",version="3"} 1x120`,
				`weir_gate_decisions_total{namespace="small",instance="b",decision="pass",rule=""} 0+9x120`,
				`weir_gate_decisions_total{namespace="small",instance="b",decision="refuse",rule="login"} 0+1x120`,
			},
			quiet: "44m", fires: "58m", over: "90m",
			notices: []notice{{
				ownersLabels + "block", "Rule login refuses 10% of all requests",
				"For 15 minutes the gates of weir have refused 10% of all requests for blocks of login.",
			}},
		},
		{
			alert: "WeirRuleMatchesNothing", every: "15m",
			series: []string{
				theRule("shadow", "1x300"), watched + "0+5x20 100x200 105+5x80", `weir_route_events_total{stream="live",namespace="weir"} 0+1000x300`,
				`weir_rule_info{namespace="weir",rule="off",owner="web",mode="disabled",version="1"} 1x300`,
				`weir_rule_info{namespace="weir",rule="new",owner="web",mode="shadow",version="1"} _x100 1x80`,
				`weir_rule_info{namespace="quiet",rule="login",owner="web",mode="shadow",version="1"} 1x300`,
				`weir_route_events_total{stream="live",namespace="quiet"} 0+90x300`,
			},
			quiet: "29h", fires: "29h15m", over: "57h",
			notices: []notice{{
				ownersLabels + "shadow", "Rule login has matched no request for a day",
				"ROUTE of weir read requests all day, and none was one that login watches. Its method or path may not exist any more.",
			}},
		},
		{
			alert: "WeirRuleKeyMissing",
			series: []string{
				theRule("shadow", "1x200"), watched + "0+100x200",
				`weir_rule_uncounted_events_total{stream="live",namespace="weir",stage="route",rule="login",reason="missing_field"} 0+19x60 1140+30x60 2940+1x80`,
			},
			quiet: "75m", fires: "100m", over: "160m",
			notices: []notice{{
				ownersLabels + "shadow", "Rule login leaves out 30% of its requests",
				"30% of the requests that login watches lack a field of its key, or what it counts. They feed no window.",
			}},
		},
		{
			alert: "WeirRuleEventsLate",
			series: []string{
				theRule("block", "1x200"), watched + "0+100x200",
				`weir_rule_uncounted_events_total{stream="live",namespace="weir",stage="detect",rule="login",reason="late"} 0+4x60 240+20x60 1440x80`,
				`weir_rule_uncounted_events_total{stream="live",namespace="weir",stage="route",rule="login",reason="missing_field"} 0+90x200`,
			},
			quiet: "75m", fires: "100m", over: "160m",
			notices: []notice{{
				ownersLabels + "block", "Rule login gets 20% of its requests too late",
				"20% of the requests that login watches come later than its lateness allows. They feed no window.",
			}},
		},
	}
}
