# Packages the accelerator as a kernel of Vitis: vivado -mode batch -source package.tcl
#
# Makes accelerator.xo in the folder in which it runs, of ../rtl and kernel.xml beside this script;
# `v++ --link --platform ... accelerator.xo` takes it to an xclbin. The project's tests run this script with commands of
# Vivado that only write down what is asked of them: it was never run in Vivado itself.
set here [file dirname [file normalize [info script]]]
set rtl [file join $here .. rtl]
set list [open [file join $rtl files.f]]
set sources [list [file join $rtl isa.svh]]
foreach name [split [string trim [read $list]] "\n"] {
  if {![string match +* $name]} { lappend sources [file join $rtl $name] }
}
close $list
create_project -force packaged packaged
add_files -norecurse $sources
set_property file_type {Verilog Header} [get_files *.svh]
set_property top kernel [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -root_dir packaged/ip -vendor derivable -library kernel -taxonomy /KernelIP -import_files
set core [ipx::current_core]
# The name by which kernel.xml knows the core, else that of the module on top.
set_property name accelerator $core
set_property version 1.0 $core
# The parameters of the design stand in the sources, and nobody may set them.
foreach parameter [ipx::get_user_parameters -of_objects $core] {
  ipx::remove_user_parameter [get_property NAME $parameter] $core
}
set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
set_property supported_families {} $core
set_property auto_family_support_level level_2 $core
foreach bus {s_axi_control m_axi_memory} {
  ipx::associate_bus_interfaces -busif $bus -clock ap_clk $core
}
ipx::associate_bus_interfaces -clock ap_clk -reset ap_rst_n $core
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity -kernel $core
ipx::save_core $core
package_xo -force -xo_path accelerator.xo -kernel_name accelerator -ip_directory packaged/ip \
  -kernel_xml [file join $here kernel.xml]
close_project
